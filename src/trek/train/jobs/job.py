"""A function run once in every process of a gang, on an Engine, with the leader's return value brought back.

The function travels by cloudpickle, from this program to processes it starts itself, through a folder that only its
owner can read. What comes back is JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trek.engines import OutputLine, open_engine
from trek.engines.base import Exit, Gang, GangSpec
from trek.engines.failure import to_error
from trek.engines.pickling import pickled_by_value
from trek.errors import ConfigError, RankFailed
from trek.train.jobs.hang_report import ASKED, ask_where
from trek.train.jobs.rank_outcome import find_cause, read_outcomes
from trek.train.loop.stopping import Stopped, StopRequest, stop_on_signals
from trek.world import World

PAYLOAD = "job.pkl"
RETURNED = "returned.json"


def run_job(function: Callable[[World], Any], *, origin: Any, num_workers: int, engine: str, folder: Path) -> Any:
    """Call `function(world)` on `num_workers` processes; what the leader's call returned, which must be JSON-able.

    `origin` is the user's function or class inside `function`: if its module cannot be imported by name (a notebook, a
    file loaded from elsewhere), its code travels along.

    Output of the leader is passed through as it is, that of other ranks with their rank before it. The first failure
    ends all, and is raised here: the user's exception as `RankFailed`, a mistake Trek named as it was.
    """
    _forget_earlier(folder)
    _write_payload(function, folder, origin=origin)
    stop = StopRequest()
    command = [sys.executable, "-m", "trek.train.jobs.job_worker", str(folder)]
    with stop_on_signals(stop):
        gang = open_engine(engine).start(GangSpec(command=command, num_workers=num_workers), on_line=_print_line)
        try:
            failed = _watch(gang, stop)
            waiting = _waiting(gang, folder) if failed else {}
        finally:
            gang.stop(grace_s=2.0)
    if failed is not None:
        raise _error(failed, folder, waiting, num_workers=num_workers)
    if stop.is_set and not (folder / RETURNED).exists():  # asked to end before training began
        raise Stopped(stop.reason)
    return json.loads((folder / RETURNED).read_text())


def own_world(num_workers: int | None) -> World | None:
    """The World this process was started in, by torchrun, mpirun, srun or Trek; None where workers are to be started.

    With `num_workers`, a world of another size is refused: nobody finds out later that half of them are missing.
    """
    world = World.from_env()
    if world.is_distributed and num_workers not in (None, 1, world.size):
        raise ConfigError(
            f"{num_workers} workers were asked for, but this process is one of {world.size} that were started "
            f"together. Start {num_workers} processes, or leave workers out."
        )
    return world if world.is_distributed or num_workers == 1 else None


def _forget_earlier(folder: Path) -> None:
    """Remove what the processes of an earlier run in this folder said of themselves."""
    for pattern in (RETURNED, ASKED, "outcome_*.json", "where_*.txt"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _write_payload(function: Callable[[World], Any], folder: Path, *, origin: Any) -> None:
    import cloudpickle

    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / PAYLOAD, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file, pickled_by_value(origin):
        # The path goes first: what follows may need it to be loaded at all.
        cloudpickle.dump((sys.path, sys.argv), file)
        cloudpickle.dump((function, origin), file)


def _watch(gang: Gang, stop: StopRequest) -> Exit | None:
    """The first failure, or None when all ended well; a stop request is passed on to the members."""
    while True:
        failed: Exit | None = gang.wait_first_failure(timeout_s=0.2)
        if failed is not None or gang.wait(timeout_s=0) is not None:
            return failed
        if stop.is_set:
            gang.stop(grace_s=30.0)
            return None


def _print_line(line: OutputLine) -> None:
    stream = sys.stdout if line.stream == "stdout" else sys.stderr
    prefix = "" if line.rank == 0 else f"[rank {line.rank}] "
    print(f"{prefix}{line.text}", file=stream, flush=True)


def _waiting(gang: Gang, folder: Path) -> dict[int, str]:
    """Where the other ranks are, in their own words; asked before they are stopped."""
    said = ask_where(folder, list(gang.pids))
    return said | {outcome.rank: outcome.where for outcome in read_outcomes(folder) if outcome.where}


def _error(failed: Exit, folder: Path, waiting: dict[int, str], *, num_workers: int) -> BaseException:
    outcomes = read_outcomes(folder)
    said = find_cause(outcomes) if any(outcome.rank == failed.rank for outcome in outcomes) else None
    source = said.rank if said else failed.rank
    others = "".join(f"\n  rank {rank} was {where}" for rank, where in sorted(waiting.items()) if rank != source)
    if said is None:
        error = to_error(failed, num_workers=num_workers)
        return RankFailed(
            f"{error}{others}",
            rank=error.rank,
            process_exit_code=error.process_exit_code,
            traceback_text=error.traceback_text,
        )
    if said.kind != "user":
        return said.named_error()
    return RankFailed(
        f"rank {source} of {num_workers} failed: {said.message}{others}",
        rank=source,
        process_exit_code=said.exit_code,
        traceback_text=said.traceback,
    )
