"""A Traveler in a command joins the trial that the command is run for: reports to it, resumes, and obeys.

Called by name, through TREK_HOST; see `trek.train.trial_host`.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading

from trek.client.models import Assignment
from trek.experiments.config import ExperimentConfig
from trek.experiments.exit_report import report_uncaught_errors
from trek.experiments.settings import session_settings, start_of
from trek.experiments.trial_process import TrialProcess
from trek.train.checkpointing.keeping import KeepPolicy
from trek.train.jobs.rank_outcome import RankOutcome
from trek.train.length import Length
from trek.train.loggers.base import Logger
from trek.train.loop.schedule import Schedule
from trek.train.loop.stopping import StopRequest
from trek.train.metrics.goal import Goal
from trek.train.trial_host import TrialHost
from trek.world import World

_has_joined = False


def join(world: World, *, stop: StopRequest) -> TrialHost | None:
    """What the program's first Traveler takes over from its trial; a later one trains on its own."""
    global _has_joined
    if _has_joined:
        print("trek: the first Traveler of this program is the trial's; this one trains on its own.", flush=True)
        return None
    _has_joined = True
    place = TrialProcess.from_env(os.environ)
    client = place.open_client()
    atexit.register(client.close)
    assignment = place.assignment(client)
    config = ExperimentConfig.parse(assignment.config)
    loggers: list[Logger] = []
    if world.is_leader:
        logger = place.open_logger(client, config=config, stop=stop)
        atexit.register(logger.finish)
        loggers.append(logger.__enter__())
    atexit.register(_leave_word, place, world.rank, stop)
    report_uncaught_errors()
    _stop_on_sigterm(stop)
    return _host(config, assignment, loggers)


def _host(config: ExperimentConfig, assignment: Assignment, loggers: list[Logger]) -> TrialHost:
    settings = session_settings(config, assignment)
    return TrialHost(
        length=_schedule(settings.max_length, assignment),
        seed=settings.seed,
        checkpoint_dir=assignment.checkpoint_dir,
        checkpoint_period=settings.checkpoint_period or Length(1, "epochs"),
        keep=KeepPolicy(best=settings.keep_best, last=settings.keep_last),
        goal=Goal(settings.metric, settings.smaller_is_better),
        resume=start_of(assignment),
        loggers=loggers,
    )


def _schedule(length: Length, assignment: Assignment) -> Schedule:
    """Records are counted in batches of the trial's global_batch_size, which a length in records needs."""
    if length.unit == "epochs":
        return Schedule(epochs=length.count)
    size = int(assignment.hparams.get("global_batch_size", 1))
    return Schedule(batches=length.to_batches(batch_records=size, epoch_batches=None))


def _leave_word(place: TrialProcess, rank: int, stop: StopRequest) -> None:
    """A program that was asked to stop, and did; others are judged by their exit code."""
    if stop.is_set:
        RankOutcome(rank, "done", stop_reason=stop.reason).write(place.folder)


def _stop_on_sigterm(stop: StopRequest) -> None:
    """Unless the program has a handler of its own."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: stop.request("preempted"))
