"""RunSetup: what a run is made from, as its arguments, the environment and the trial that hosts it decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from trek.errors import InputError
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.checkpointing.stores import Storage
from trek.train.folders import check_places
from trek.train.loggers.base import JobIdentity, Logger
from trek.train.loggers.choice import LoggerChoice, split_loggers
from trek.train.loop.data_wait import DataWait
from trek.train.loop.stopping import StopOnSignals, StopRequest
from trek.train.settings import TrainSettings
from trek.train.trial_host import TrialHost, find_host
from trek.world import World

NO_CONTEXT: AbstractContextManager[Any] = nullcontext()


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """One rank's."""

    settings: TrainSettings
    world: World
    stop: StopRequest
    on_signals: AbstractContextManager[Any]
    """Around the loop, and around the block of a `with`; callers that pass a World handle signals themselves."""
    host: TrialHost | None
    checkpoint_dir: Path | str | Storage | None
    resume: CheckpointFolder | Path | str | None
    folder: Path | str | None
    logger_names: Sequence[LoggerChoice]
    loggers: Sequence[Logger]
    trial: Mapping[str, Any] | None
    """The description of the Trial, for its checkpoints."""
    owner: str | None
    job: JobIdentity | None
    wait: DataWait | None

    @classmethod
    def of(
        cls,
        settings: TrainSettings | None = None,
        *,
        world: World | None = None,
        host: TrialHost | None = None,
        checkpoint_dir: Path | str | Storage | None = None,
        resume: CheckpointFolder | Path | str | None = None,
        folder: Path | str | None = None,
        loggers: Sequence[Logger | LoggerChoice] = (),
        stop: StopRequest | None = None,
        trial: Mapping[str, Any] | None = None,
        owner: str | None = None,
        job: JobIdentity | None = None,
        wait: DataWait | None = None,
        **named: Any,
    ) -> Self:
        """From a Traveler's arguments, of which `named` are settings; the settings and places of a host override them.

        Without a World, the process is the entry point of its program: World, host and signals are its own to read.
        """
        if stop is not None and not isinstance(stop, StopRequest):
            raise InputError(f"stop must be a StopRequest, got {stop!r}. Leave it out to stop on signals.")
        if world is not None and not isinstance(world, World):
            raise InputError(f"world must be a trek.World, got {world!r}.")
        stop, on_signals = stop or StopRequest(), NO_CONTEXT
        if world is None:
            world = World.from_env()
            host = find_host(world, stop=stop)
            on_signals = StopOnSignals(stop) if host is None else NO_CONTEXT
        chosen = TrainSettings.of(settings, **named)
        names, objects = split_loggers(loggers)
        check_places(checkpoint_dir=checkpoint_dir, resume=resume)
        if host is not None:
            chosen, folder = host.apply_to(chosen), host.folder
            checkpoint_dir, resume, owner, job = host.checkpoint_dir, host.resume, host.owner, host.job
            objects += host.loggers
        return cls(
            settings=chosen,
            world=world,
            stop=stop,
            on_signals=on_signals,
            host=host,
            checkpoint_dir=checkpoint_dir,
            resume=resume,
            folder=folder,
            logger_names=names,
            loggers=objects,
            trial=trial,
            owner=owner,
            job=job,
            wait=wait,
        )
