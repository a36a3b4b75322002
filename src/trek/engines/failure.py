"""A gang's failure in a few lines: who failed first, how, and the user's own exception. Reads Exits, prints nothing."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from trek.engines.base import Exit
from trek.errors import OutsideError, RankFailed

MAX_LINES = 15
_TRACEBACK = "Traceback (most recent call last):"
_GROUP = re.compile(r"(\s*)\+ Exception Group ")
_MAX_TRACEBACK_LINES = 12
_MAX_LAST_LINES = 5
_HINTS: dict[int, str] = {
    signal.SIGKILL: "Something outside killed it; where memory is short, that is the kernel.",
    signal.SIGSEGV: "Native code crashed; set PYTHONFAULTHANDLER=1 to see where.",
    signal.SIGBUS: "Shared memory or disk may be full: see /dev/shm.",
}


def describe_failure(failed: Exit, *, num_workers: int) -> str:
    """At most 15 lines about the first failing rank: its traceback or last lines, then a one-line summary."""
    shown = find_exception(failed.last_lines) or list(failed.last_lines[-_MAX_LAST_LINES:])
    lines = [*shown, f"trek: error: {_headline(failed, num_workers)}"]
    assert len(lines) <= MAX_LINES
    return "\n".join(lines)


def to_error(failed: Exit, *, num_workers: int) -> RankFailed:
    """The same as an exception: the one line as its message, the user's traceback beside it."""
    return RankFailed(
        _headline(failed, num_workers),
        rank=failed.rank,
        process_exit_code=failed.code,
        traceback_text="\n".join(find_exception(failed.last_lines)),
    )


def find_exception(lines: Sequence[str]) -> list[str]:
    """The last traceback among `lines`, shortened in the middle; empty when there is none."""
    starts = [index for index, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if not starts:
        return []
    found = [_TRACEBACK]
    # torch.distributed writes `[rank1]: ` before every line of a traceback, other programs something else.
    prefix = lines[starts[-1]].removesuffix(_TRACEBACK)
    if group := _GROUP.fullmatch(prefix):
        prefix = f"{group[1]}| "
    for whole in lines[starts[-1] + 1 :]:
        line = whole.removeprefix(prefix)
        is_frame = line.startswith(" ") and not line.lstrip().startswith("+-")
        if not is_frame and not found[-1].startswith((" ", _TRACEBACK)):
            break
        found.append(line)
    if len(found) > _MAX_TRACEBACK_LINES:
        found = [found[0], "  …", *found[2 - _MAX_TRACEBACK_LINES :]]
    return found


def find_unreached(failed: Exit) -> OutsideError | None:
    """The error of a host that could not be reached, or was lost; None if the failure is the member's own."""
    if not failed.is_unreached:
        return None
    said = next((line.strip() for line in reversed(failed.last_lines) if line.strip()), f"it ended with {failed.code}")
    what = "cannot be reached" if failed.pid == 0 else f"was lost while rank {failed.rank} was running there"
    return OutsideError(f"host {failed.host!r} {what}: {said.rstrip('.')}. {failed.hint}".rstrip())


def exit_status(code: int) -> int:
    """What a shell would show for `code`: 128 + n for signal n."""
    return code if code >= 0 else 128 - code


def _headline(failed: Exit, num_workers: int) -> str:
    who = f"rank {failed.rank} of {num_workers} on {failed.host} (pid {failed.pid})"
    if failed.code < 0:
        return f"{who} was killed by {_signal_name(-failed.code)}.{_hint(-failed.code)}"
    exception = find_exception(failed.last_lines)[-1:]
    return f"{who} exited with code {failed.code}{''.join(f': {line.strip()}' for line in exception)}"


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _hint(number: int) -> str:
    return f" {_HINTS[number]}" if number in _HINTS else ""
