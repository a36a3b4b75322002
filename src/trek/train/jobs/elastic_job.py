"""A function run in the processes of an elastic job, which come and go, with the result of those that finished."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from trek.elastic.elastic_gang import ElasticGang, JobEnd
from trek.elastic.joining import membership_settings
from trek.engines.base import Engine, GangSpec
from trek.engines.crowding import warn_of_crowding
from trek.engines.failure import to_error
from trek.errors import OutsideError, RankFailed
from trek.train.jobs.job import PAYLOAD, STOP_GRACE_S, TRAINING_IMPORTS, error_of, payload, reminded, run_job
from trek.train.jobs.job_output import JobOutput
from trek.train.jobs.rank_outcome import RankOutcome, read_outcomes
from trek.train.jobs.servers import open_servers, restart_server
from trek.train.loop.stopping import Interrupted, StopOnSignals, StopRequest, stopped
from trek.train.workers import WorkerRange
from trek.world import World

_POLL_S = 0.1


def run_elastic_job(
    function: Callable[[World], Any],
    *,
    origin: Any,
    workers: WorkerRange,
    engine: Engine,
    num_servers: int = 0,
    output: JobOutput | None = None,
) -> Any:
    """Call `function(world)` on as many processes as `workers` allows; what a process that finished returned.

    See `run_job`. A process that is killed is replaced; an error of the function itself ends the job.
    """
    servers = open_servers(num_servers)
    spec = GangSpec(
        command=[sys.executable, "-m", "trek.train.jobs.job_worker"],
        num_workers=workers.max,
        files={PAYLOAD: payload(function, origin=origin, engine=engine)},
        imports=TRAINING_IMPORTS,
        roles=servers.roles,
    )
    stop, output = StopRequest(), output or JobOutput()
    with StopOnSignals(stop), closing(output), closing(servers):
        job = ElasticGang(
            engine,
            spec,
            membership_settings(workers.min, workers.max),
            on_line=output.on_line,
            on_change=output.on_change,
            restart_other=restart_server,
        )
        try:
            end = _watch(job, stop, output)
        finally:
            job.close()
    return _returned(end, read_outcomes(job.gang), stop, num_workers=workers.max)


def _watch(job: ElasticGang, stop: StopRequest, output: JobOutput) -> JobEnd:
    while True:
        output.handle_messages()
        end = job.poll()
        if end is not None:
            return end
        if stop.is_set:
            with reminded():
                job.stop(grace_s=STOP_GRACE_S)
            return JobEnd()
        time.sleep(_POLL_S)


def _returned(end: JobEnd, outcomes: Sequence[RankOutcome], stop: StopRequest, *, num_workers: int) -> Any:
    failed = [outcome for outcome in outcomes if outcome.kind != "done"]
    if end.reason:
        last = f" The last one: {to_error(end.failed, num_workers=num_workers)}" if end.failed is not None else ""
        raise OutsideError(f"the job cannot go on: {end.reason}.{last}")
    if end.failed is not None:
        raise error_of(end.failed, outcomes, {}, num_workers=num_workers)
    if stop.reason == "interrupted":
        raise Interrupted
    if not outcomes and stop.is_set:
        raise stopped(stop.reason)
    if not outcomes or failed:
        raise RankFailed("no worker finished its function.", rank=0, process_exit_code=0)
    return next((outcome.returned for outcome in outcomes if outcome.returned is not None), None)


def run_anywhere(
    function: Callable[[World], Any],
    *,
    origin: Any,
    workers: int | WorkerRange,
    num_servers: int = 0,
    engine: Engine,
    output: JobOutput | None = None,
    resumed: Callable[[], Callable[[World], Any]] | None = None,
) -> Any:
    """`run_elastic_job` for a range of workers, `run_job` for a number."""
    warn_of_crowding(engine, workers.min if isinstance(workers, WorkerRange) else workers)
    if isinstance(workers, WorkerRange):
        return run_elastic_job(
            function, origin=origin, workers=workers, num_servers=num_servers, engine=engine, output=output
        )
    return run_job(
        function,
        origin=origin,
        num_workers=workers,
        num_servers=num_servers,
        engine=engine,
        output=output,
        resumed=resumed,
    )
