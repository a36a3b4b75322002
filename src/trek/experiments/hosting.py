"""A Traveler in a command joins the trial that the command is run for: reports to it, resumes, and obeys.

Called by name, through TREK_HOST; see `trek.train.trial_host`.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from pathlib import Path

from trek.client.models import Assignment
from trek.experiments.config import ExperimentConfig
from trek.experiments.exit_report import report_uncaught_errors
from trek.experiments.trial_process import TrialProcess
from trek.experiments.trial_settings import decided, start_of
from trek.train.jobs.rank_outcome import RankOutcome
from trek.train.length import Length
from trek.train.loggers.base import Logger
from trek.train.loop.stopping import StopRequest
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
    return _host(config, assignment, folder=place.folder.path, loggers=loggers)


def _host(config: ExperimentConfig, assignment: Assignment, *, folder: Path, loggers: list[Logger]) -> TrialHost:
    """What the experiment decides, and what its config says of training in so many words; the rest is the program's.

    A loop of the program's own does not validate through Trek, so its checkpoints come by the epoch.
    """
    settings = {name: getattr(config.training, name) for name in config.training.model_fields_set}
    settings |= decided(config, assignment)
    if settings["checkpoint_period"] is None:
        settings["checkpoint_period"] = Length(1, "epochs")
    return TrialHost(
        settings=settings,
        folder=folder,
        checkpoint_dir=assignment.checkpoint_dir,
        resume=start_of(assignment),
        loggers=loggers,
    )


def _leave_word(place: TrialProcess, rank: int, stop: StopRequest) -> None:
    """A program that was asked to stop, and did; others are judged by their exit code."""
    if stop.is_set:
        RankOutcome(rank, "done", stop_reason=stop.reason).write(place.folder)


def _stop_on_sigterm(stop: StopRequest) -> None:
    """Unless the program has a handler of its own."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: stop.request("preempted"))
