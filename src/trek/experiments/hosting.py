"""Connects a Traveler in a command to its trial: it reports to the trial, resumes, and follows stop requests.

Called by name, through TREK_HOST; see `trek.train.trial_host`.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from pathlib import Path

from trek.client.models import Assignment
from trek.elastic.joining import is_elastic
from trek.experiments.config import ExperimentConfig
from trek.experiments.exit_report import report_uncaught_errors
from trek.experiments.trial_process import TrialProcess
from trek.experiments.trial_settings import fixed_settings, job_identity
from trek.experiments.trial_storage_choice import open_trial_storage, resume_point, tell_storage
from trek.train.checkpointing.stores import Storage
from trek.train.jobs.rank_outcome import RankOutcome
from trek.train.length import Length
from trek.train.loggers.base import Logger
from trek.train.loop.stopping import StopRequest
from trek.train.trial_host import TrialHost
from trek.world import World

_has_joined = False


def join(world: World, *, stop: StopRequest) -> TrialHost | None:
    """The TrialHost for the program's first Traveler; None for later ones, which train independently."""
    global _has_joined
    if _has_joined:
        print(
            "trek: only the first Traveler of a program belongs to its trial; this one trains independently.",
            flush=True,
        )
        return None
    _has_joined = True
    place = TrialProcess.from_env(os.environ)
    client = place.open_client()
    atexit.register(client.close)
    assignment = place.assignment(client)
    config = ExperimentConfig.parse(assignment.config)
    loggers: list[Logger] = []
    if world.is_leader or is_elastic():  # any worker of an elastic trial may become the leader
        logger = place.open_logger(client, config=config, stop=stop)
        atexit.register(logger.finish)
        loggers.append(logger.__enter__())
    atexit.register(_write_outcome, place, world.rank, stop)
    report_uncaught_errors()
    _stop_on_sigterm(stop)
    storage = open_trial_storage(assignment, place=place, client=client)
    tell_storage(storage, world=world)
    return _host(config, assignment, storage=storage, folder=place.folder.path, loggers=loggers)


def _host(
    config: ExperimentConfig, assignment: Assignment, *, storage: Storage, folder: Path, loggers: list[Logger]
) -> TrialHost:
    """The settings fixed by the experiment and those set in its config; all others are left to the program.

    An explicit loop validates by itself, so by default it saves a checkpoint every epoch; with the checkpoint policy
    `all`, every validation period.
    """
    settings = {name: getattr(config.training, name) for name in config.training.model_fields_set}
    settings |= fixed_settings(config, assignment)
    policy = config.training.checkpoint_policy
    if settings["checkpoint_period"] is None and policy != "none":
        validated = config.training.validation_period if policy == "all" else None
        settings["checkpoint_period"] = validated or Length(1, "epochs")
    return TrialHost(
        settings=settings,
        folder=folder,
        checkpoint_dir=storage,
        owner=assignment.owner,
        resume=resume_point(assignment, storage),
        loggers=loggers,
        job=job_identity(assignment),
    )


def _write_outcome(place: TrialProcess, rank: int, stop: StopRequest) -> None:
    """Write the outcome of a program that was asked to stop; others are judged by their exit code."""
    if stop.is_set:
        RankOutcome(rank, "done", stop_reason=stop.reason).write(place.folder)


def _stop_on_sigterm(stop: StopRequest) -> None:
    """Request a stop on SIGTERM, unless the program has its own handler."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: stop.request("preempted"))
