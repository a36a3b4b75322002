"""Scripted faults: fail rank r at step s, in a way of one's choice. For tests of what happens then.

    TREK_FAULTS="kill rank=1 step=50; exit rank=0 step=70 code=3; raise rank=2 step=5 once=/tmp/seen"

A training loop under test calls `FaultScript.from_env(rank=world.rank).at(step)` at every step. With `once`, a fault
leaves the file it names and does not happen again after a restart.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn, cast, get_args

from trek.errors import InputError

VARIABLE = "TREK_FAULTS"
Kind = Literal["raise", "exit", "kill", "hang"]


class ScriptedFailure(RuntimeError):
    """What a fault of kind `raise` raises."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong: how, on which rank, at which step."""

    kind: Kind
    rank: int
    step: int
    code: int = 1
    once: Path | None = None

    def __str__(self) -> str:
        once = f" once={self.once}" if self.once else ""
        return f"{self.kind} rank={self.rank} step={self.step} code={self.code}{once}"


class FaultScript:
    """The faults of one rank."""

    def __init__(self, faults: Sequence[Fault], *, rank: int) -> None:
        self._by_step = {fault.step: fault for fault in faults if fault.rank == rank}

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, *, rank: int) -> FaultScript:
        """The faults that TREK_FAULTS names; none when it is not set."""
        return cls(parse_faults(environ.get(VARIABLE, "")), rank=rank)

    def at(self, step: int) -> None:
        """Let happen what is scripted for `step`."""
        fault = self._by_step.get(step)
        if fault is not None and _claim(fault):
            _happen(fault)


def parse_faults(text: str) -> list[Fault]:
    """Faults separated by semicolons: a kind, then key=value pairs."""
    return [_parse(part) for part in text.split(";") if part.strip()]


def _parse(text: str) -> Fault:
    kind, *pairs = text.split()
    settings = dict(pair.partition("=")[::2] for pair in pairs)
    unknown = settings.keys() - {"rank", "step", "code", "once"}
    if kind not in get_args(Kind) or unknown or not {"rank", "step"} <= settings.keys():
        raise InputError(f"fault {text.strip()!r} is not understood. Write 'kill rank=1 step=50' or raise, exit, hang.")
    once = settings.pop("once", None)
    numbers = {name: int(value) for name, value in settings.items()}
    return Fault(
        cast(Kind, kind), numbers["rank"], numbers["step"], numbers.get("code", 1), Path(once) if once else None
    )


def _claim(fault: Fault) -> bool:
    if fault.once is None:
        return True
    try:
        fault.once.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _happen(fault: Fault) -> NoReturn:
    if fault.kind == "raise":
        raise ScriptedFailure(f"rank {fault.rank} was told to fail at step {fault.step}")
    if fault.kind == "exit":
        sys.stdout.flush()
        os._exit(fault.code)
    if fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(3600)
