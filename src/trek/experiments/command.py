"""A command as a trial: started beside every slot's process, told to stop by SIGTERM, and its end put into words.

No shell reads it. What the command does is its own business; a Traveler in it joins the trial, see `joining`.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from trek.client.client import Client
from trek.client.models import Report
from trek.errors import EntrypointError, TrekError
from trek.experiments.hparams import VARIABLE as HPARAMS
from trek.experiments.trial_process import TrialProcess
from trek.train.jobs.rank_outcome import RankOutcome
from trek.train.loop.stopping import StopRequest

JOIN = "trek.experiments.hosting:join"
LOOK_S = 0.1
ASK_S = 1.0
"""How often the control plane is asked whether the command should stop."""
_PYTHONS = ("python", "python3")


def run_command(
    words: Sequence[str],
    *,
    place: TrialProcess,
    rank: int,
    hparams: Mapping[str, Any],
    client: Client,
    stop: StopRequest,
) -> RankOutcome:
    """Run the command in the unpacked model folder until it ends; asked to stop, it gets SIGTERM and all its time."""
    environ = {**os.environ, HPARAMS: json.dumps(dict(hparams)), "TREK_HOST": JOIN, "PYTHONUNBUFFERED": "1"}
    try:
        process = subprocess.Popen(with_own_python(words), env=environ, cwd=place.code)
    except OSError as error:
        raise EntrypointError(f"the command {shlex.join(words)!r} cannot be run: {error.strerror}.") from None
    asked = False
    next_look_s = 0.0
    while (code := _ended(process)) is None:
        if not asked and time.monotonic() >= next_look_s:
            next_look_s = time.monotonic() + ASK_S
            _ask(client, place, stop)
        if stop.is_set and not asked:
            asked = True
            process.terminate()
    return _outcome(words, code, place=place, rank=rank, stop=stop)


def with_own_python(words: Sequence[str]) -> list[str]:
    """`python` is the Python that runs Trek, whatever else is on the path."""
    return [sys.executable, *words[1:]] if words[0] in _PYTHONS else list(words)


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(LOOK_S)
    except subprocess.TimeoutExpired:
        return None


def _ask(client: Client, place: TrialProcess, stop: StopRequest) -> None:
    try:
        reply = client.report(place.trial_id, Report(run=place.run))
    except TrekError:
        return  # a control plane that is away has no wishes; it is asked again
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
        _die_of(-code)
    return RankOutcome(rank, "user", f"the command '{shlex.join(words)}' ended with code {code}; see its log")


def _die_of(number: int) -> None:
    """End as the command did, so that whoever watches sees what happened to it."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
