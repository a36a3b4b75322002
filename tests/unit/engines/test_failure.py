"""A failure in a few lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trek.engines import Exit, describe_failure, to_error
from trek.engines.failure import MAX_LINES, exit_status, find_exception, find_unreached

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    step()",
    "ValueError: the user's own",
)


def test_the_last_line_names_rank_host_pid_code_and_exception() -> None:
    text = describe_failure(Exit(1, "node1", 42, 1, ("noise", *TRACEBACK)), num_workers=4)
    assert text.splitlines() == [
        *TRACEBACK,
        "trek: error: rank 1 of 4 on node1 (pid 42) exited with code 1: ValueError: the user's own",
    ]


def test_a_signal_is_named_with_a_hint() -> None:
    text = describe_failure(Exit(0, "node1", 42, -9), num_workers=1)
    assert "rank 0 of 1 on node1 (pid 42) was killed by SIGKILL." in text
    assert "memory" in text


def test_an_unknown_signal_keeps_its_number() -> None:
    assert "killed by signal 40" in describe_failure(Exit(0, "h", 1, -40), num_workers=1)


def test_without_a_traceback_the_last_words_are_shown() -> None:
    lines = tuple(f"line {n}" for n in range(20))
    assert describe_failure(Exit(0, "h", 1, 3, lines), num_workers=2).splitlines()[:-1] == list(lines[-5:])


def test_a_long_traceback_is_shortened_in_the_middle() -> None:
    frames = [line for n in range(40) for line in (f'  File "f{n}.py", line 1, in g', "    h()")]
    text = describe_failure(Exit(0, "h", 1, 1, (TRACEBACK[0], *frames, "KeyError: 1")), num_workers=2)
    assert len(text.splitlines()) <= MAX_LINES
    assert "KeyError: 1" in text
    assert "f39.py" in text


def test_only_the_last_of_several_tracebacks_counts_and_what_follows_it_does_not() -> None:
    lines = [
        *TRACEBACK,
        "",
        "During handling of the above exception, another one:",
        "",
        TRACEBACK[0],
        "  a",
        "OSError: x",
        "[W] late",
    ]
    assert find_exception(lines) == [TRACEBACK[0], "  a", "OSError: x"]


def test_it_becomes_an_error_with_the_users_traceback() -> None:
    error = to_error(Exit(2, "h", 9, 1, TRACEBACK), num_workers=3)
    assert (error.rank, error.process_exit_code, error.exit_code) == (2, 1, 1)
    assert error.traceback_text == "\n".join(TRACEBACK)


def test_exit_status_is_what_a_shell_shows() -> None:
    assert [exit_status(3), exit_status(-9)] == [3, 137]


@pytest.mark.parametrize("prefix", ["[rank1]: ", "[default0]:", "(worker pid=12) "])
def test_an_exception_is_found_behind_a_prefix_of_every_line(prefix: str) -> None:
    """torch.distributed writes `[rank1]: ` before each line, and the summary was `[rank1]: Traceback …`."""
    lines = [f"{prefix}{line}" for line in TRACEBACK]
    assert find_exception(["noise", *lines, "[W1116] late"]) == list(TRACEBACK)
    assert str(to_error(Exit(1, "h", 2, 1, tuple(lines)), num_workers=2)).endswith(": ValueError: the user's own")


def test_the_exception_of_a_group_is_its_own_and_not_its_last_line() -> None:
    lines = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "a.py", line 1, in <module>',
        "  |     run()",
        "  | ExceptionGroup: both failed (2 sub-exceptions)",
        "  +-+---------------- 1 ----------------",
        "    | ValueError: one",
        "    +------------------------------------",
    ]
    assert find_exception(lines)[-1] == "ExceptionGroup: both failed (2 sub-exceptions)"


def test_a_host_that_was_not_reached_is_an_outside_error() -> None:
    """The exit code of ssh, 255, counted as the script's."""
    said = ("ssh: connect to host node7: No route to host", "")
    lost = Exit(0, "node7", 0, 255, said, is_unreached=True, hint="Check that `ssh node7` works.")
    error = find_unreached(lost)
    assert error is not None
    assert error.exit_code == 3
    assert str(error).startswith(
        "host 'node7' cannot be reached: ssh: connect to host node7: No route to host. Check that"
    )
    assert "was lost while rank 0" in str(find_unreached(replace(lost, pid=5)))
    assert find_unreached(replace(lost, is_unreached=False)) is None
