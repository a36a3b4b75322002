"""Runs a command as a trial: starts it in every slot's process, stops it with SIGTERM, and reports its outcome.

The command is not interpreted by a shell. A Traveler in its program joins the trial; see `hosting`.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trek.client.client import Client
from trek.client.models import Report
from trek.errors import EntrypointError, RunEnded, TrekError
from trek.experiments.hparams import VARIABLE as HPARAMS
from trek.experiments.trial_process import TrialProcess
from trek.train.jobs.rank_outcome import RankOutcome
from trek.train.loop.stopping import StopRequest
from trek.world import World

JOIN = "trek.experiments.hosting:join"
POLL_S = 0.1
ASK_S = 1.0
"""How often the control plane is asked whether the command should stop."""
_PYTHON_NAMES = ("python", "python3")


def run_command(
    words: Sequence[str],
    *,
    place: TrialProcess,
    world: World,
    hparams: Mapping[str, Any],
    client: Client,
    stop: StopRequest,
) -> RankOutcome:
    """Run the command in the unpacked model folder until it exits; a stop request sends SIGTERM, without a deadline."""
    environ = {**os.environ, HPARAMS: json.dumps(dict(hparams)), "TREK_HOST": JOIN, "PYTHONUNBUFFERED": "1"}
    try:
        process = subprocess.Popen(with_this_python(words), env=environ, cwd=place.code)
    except OSError as error:
        raise EntrypointError(f"the command {shlex.join(words)!r} cannot be run: {error.strerror}.") from None
    with place.open_system_reporter(client, world=world):
        code = _wait(process, lambda: _poll_stop(client, place, stop), stop)
    return _outcome(words, code, place=place, rank=world.rank, stop=stop)


def _wait(process: subprocess.Popen[bytes], poll_stop: Callable[[], None], stop: StopRequest) -> int:
    """The exit code of the command, which is told once that it is to stop."""
    was_asked = False
    next_ask_s = 0.0
    while (code := _exit_code(process)) is None:
        if not was_asked and time.monotonic() >= next_ask_s:
            next_ask_s = time.monotonic() + ASK_S
            poll_stop()
        if stop.is_set and not was_asked:
            was_asked = True
            process.terminate()
    return code


def with_this_python(words: Sequence[str]) -> list[str]:
    """`words` with `python` replaced by the interpreter that runs Trek, whatever is on PATH."""
    return [sys.executable, *words[1:]] if words[0] in _PYTHON_NAMES else list(words)


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return None


def _poll_stop(client: Client, place: TrialProcess, stop: StopRequest) -> None:
    try:
        reply = client.report(place.trial_id, Report(run=place.run))
    except RunEnded:
        stop.request("killed")
        return
    except TrekError:
        return  # unreachable: asked again later
    if reply.stop:
        stop.request(reply.stop)


def _outcome(words: Sequence[str], code: int, *, place: TrialProcess, rank: int, stop: StopRequest) -> RankOutcome:
    """The outcome that the program wrote itself; else what its exit code says."""
    left = RankOutcome.read(place.folder)
    if left is not None:
        return left
    if code == 0 or (stop.is_set and code == -signal.SIGTERM):
        return RankOutcome(rank, "done", stop_reason=stop.reason)
    if code < 0:
        _exit_by_signal(-code)
    return RankOutcome(rank, "user", f"the command '{shlex.join(words)}' ended with code {code}; see its log")


def _exit_by_signal(number: int) -> None:
    """Exit by the signal that ended the command, so that the supervisor sees it."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
