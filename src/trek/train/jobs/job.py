"""A function run once in every process of a gang, on an Engine, with the leader's return value brought back.

The function travels by cloudpickle, from this program to processes it starts itself, as a file that only its owner can
read. What comes back is JSON.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from trek.elastic.joining import is_elastic
from trek.engines.base import Engine, Exit, Gang, GangSpec
from trek.engines.failure import find_unreached, to_error
from trek.engines.pickling import own_modules, pickled_by_value
from trek.errors import ConfigError, RankFailed
from trek.train.jobs.hang_report import ask_where
from trek.train.jobs.job_output import JobOutput
from trek.train.jobs.rank_outcome import RankOutcome, find_cause, read_outcomes
from trek.train.jobs.servers import open_servers, restart_server
from trek.train.loop.progress import can_show_bars
from trek.train.loop.stopping import Interrupted, StopOnSignals, StopRequest, stopped
from trek.train.workers import WorkerRange
from trek.world import World

PAYLOAD = "job.pkl"
# Whoever is in a hurry kills this process, and its members die with it: only members that hang wait this long.
STOP_GRACE_S = 300.0
_REMINDER_S = 10.0
_MAX_HANGS = 2
TRAINING_IMPORTS = (
    "torch",
    "torch._dynamo",
    "safetensors.torch",
    "trek.strategies.solo",
    "trek.strategies.ddp",
    "trek.train.session",
)
"""What a process that trains is going to import: torch's compiler comes in with the first step of an optimizer."""


def run_job(
    function: Callable[[World], Any],
    *,
    origin: Any,
    num_workers: int,
    engine: Engine,
    num_servers: int = 0,
    output: JobOutput | None = None,
    resumed: Callable[[], Callable[[World], Any]] | None = None,
) -> Any:
    """Call `function(world)` on `num_workers` processes; what the leader's call returned, which must be JSON-able.

    `resumed` gives the function that goes on from the last checkpoint, for a job that is to be restarted when its ranks
    hang: at most `_MAX_HANGS` times for the same cause.

    `num_servers` parameter servers run beside them. One that dies is started again, and goes on from its journal.

    `origin` is the user's function or class inside `function`: if its module cannot be imported by name (a notebook, a
    file loaded from elsewhere), its code travels along.

    `output` shows what they write, by default without loggers, and is closed here. The first failure ends all, and is
    raised here: the user's exception as `RankFailed`, a mistake Trek named as it was.
    """
    output, hangs = output or JobOutput(), Counter[str]()
    with closing(output):
        while True:
            try:
                return _run_once(
                    function,
                    origin=origin,
                    num_workers=num_workers,
                    engine=engine,
                    num_servers=num_servers,
                    output=output,
                )
            except _Hung as hung:
                hangs[str(hung)] += 1
                if resumed is None or hangs[str(hung)] > _MAX_HANGS:
                    raise
                function = resumed()
                print("trek: the job is restarted from its last checkpoint.", file=sys.stderr, flush=True)


class _Hung(RankFailed):
    """The ranks of a job ended since none of them went on."""


def _run_once(
    function: Callable[[World], Any],
    *,
    origin: Any,
    num_workers: int,
    engine: Engine,
    num_servers: int,
    output: JobOutput,
) -> Any:
    servers = open_servers(num_servers)
    spec = GangSpec(
        command=[sys.executable, "-m", "trek.train.jobs.job_worker"],
        num_workers=num_workers,
        files={PAYLOAD: payload(function, origin=origin, engine=engine)},
        imports=TRAINING_IMPORTS,
        roles=servers.roles,
    )
    stop = StopRequest()
    with StopOnSignals(stop), closing(servers):
        gang = engine.start(spec, on_line=output.on_line)
        try:
            failed = _watch(gang, stop, output)
            waiting = ask_where(gang) if failed else {}
        finally:
            gang.stop(grace_s=2.0)
    outcomes = read_outcomes(gang)
    hang = next((outcome for outcome in outcomes if outcome.is_hang), None)
    if hang is not None:
        raise _Hung(hang.message, rank=hang.rank, process_exit_code=hang.exit_code)
    if failed is not None:
        ended = gang.wait(timeout_s=0) or [failed]
        raise error_of(_first_to_leave(ended, failed, outcomes), outcomes, waiting, num_workers=num_workers)
    leader = next((outcome for outcome in outcomes if outcome.rank == 0), None)
    if leader is None and stop.is_set:  # asked to end before training began
        raise stopped(stop.reason)
    if stop.reason == "interrupted":
        raise Interrupted
    if leader is None:  # by os._exit
        raise _left(0, num_workers=num_workers)
    return leader.returned


def own_world(num_workers: int | WorkerRange | None, *, may_start_here: bool = True) -> World | None:
    """The World this process was started in, by torchrun, mpirun, srun or Trek; None where workers are to be started.

    `may_start_here`: whether a single worker is this process, if nobody has started it as one of several.
    With `num_workers`, a world of another size is refused: nobody finds out later that half of them are missing.
    """
    world = World.from_env()
    if is_elastic():
        return world
    if isinstance(num_workers, WorkerRange):
        if not world.is_distributed:
            return None
        num_workers = world.size if world.size in num_workers else num_workers.max
    if world.is_distributed and num_workers not in (None, 1, world.size):
        raise ConfigError(
            f"{num_workers} workers were asked for, but this process is one of {world.size} that were started "
            f"together. Start {num_workers} processes, or leave workers out."
        )
    return world if world.is_distributed or (num_workers == 1 and may_start_here) else None


def payload(function: Callable[[World], Any], *, origin: Any, engine: Engine) -> bytes:
    """The function and what it needs to be loaded in another process, with the user's own modules if need be."""
    import cloudpickle

    is_near = engine.shares_disk
    with pickled_by_value(origin, modules=() if is_near else own_modules()):
        # The path goes first: what follows may need it to be loaded at all.
        first = cloudpickle.dumps((sys.path, sys.argv, can_show_bars(), is_near))
        return first + cloudpickle.dumps((function, origin))  # type: ignore[no-any-return]


def _watch(gang: Gang, stop: StopRequest, output: JobOutput) -> Exit | None:
    """The first failure, or None when all ended well; a stop request is passed on to the members."""
    while True:
        output.handle_messages()
        failed: Exit | None = gang.wait_first_failure(timeout_s=0.2)
        if failed is not None and restart_server(gang, failed):
            continue
        if failed is not None or gang.wait(timeout_s=0) is not None:
            return failed
        if stop.is_set:
            _stop(gang)
            return None


def _first_to_leave(ended: Sequence[Exit], failed: Exit, outcomes: Sequence[RankOutcome]) -> Exit:
    """The member that ended first without an outcome, if `failed` only noticed that; otherwise `failed`."""
    cause = find_cause([outcome for outcome in outcomes if outcome.kind != "done"])
    if cause is None or not cause.is_consequence:
        return failed
    known = {outcome.rank for outcome in outcomes}
    earlier = ended[: next((place for place, one in enumerate(ended) if one.rank == failed.rank), 0)]
    return next((one for one in earlier if one.rank not in known), failed)


def _stop(gang: Gang) -> None:
    """Let the members finish their batch and save, however long that takes within reason."""
    with reminded():
        gang.stop(grace_s=STOP_GRACE_S)


@contextmanager
def reminded() -> Iterator[None]:
    """Within the block, tell after a while what is waited for."""
    reminder = threading.Timer(_REMINDER_S, _remind)
    reminder.start()
    try:
        yield
    finally:
        reminder.cancel()
        reminder.join()


def _remind() -> None:
    message = "trek: waiting for the processes to finish their batch and save. Press Ctrl-C to end them at once."
    print(message, file=sys.stderr, flush=True)


def error_of(
    failed: Exit, outcomes: Sequence[RankOutcome], waiting: Mapping[int, str], *, num_workers: int
) -> BaseException:
    """What to raise for the failure of a member: its own error, and where the others were."""
    places = {**waiting, **{outcome.rank: outcome.where for outcome in outcomes if outcome.where}}
    said = find_cause(outcomes) if any(outcome.rank == failed.rank for outcome in outcomes) else None
    source = said.rank if said else failed.rank
    others = "".join(f"\n  rank {rank} was {where}" for rank, where in sorted(places.items()) if rank != source)
    if (unreached := find_unreached(failed)) is not None:
        return unreached
    if said is None and failed.code == 0:
        return _left(failed.rank, num_workers=num_workers, others=others)
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
        f"rank {source} of {num_workers} {'failed: ' if said.status is None else ''}{said.message}{others}",
        rank=source,
        process_exit_code=said.exit_code,
        traceback_text=said.traceback,
    )


def _left(rank: int, *, num_workers: int, others: str = "") -> RankFailed:
    return RankFailed(
        f"rank {rank} of {num_workers} exited with code 0 before its function returned. Return instead of "
        f"exiting.{others}",
        rank=rank,
        process_exit_code=0,
    )
