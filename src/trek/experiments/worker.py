"""What every process of a trial runs: `python -m trek.experiments.worker`.

Asks the control plane what to train, unpacks and loads the user's code, trains, and leaves word of how it ended.
Exit codes: 0 done (stopped included), 1 the user's code failed, 2 a mistake Trek can name, 3 the outside failed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trek.client.client import Address, Client
from trek.client.embedded import read_address
from trek.client.models import Assignment, Report
from trek.errors import InputError, MasterUnreachable
from trek.experiments.checkpoint_address import fetch_checkpoint
from trek.experiments.config import ExperimentConfig
from trek.experiments.entrypoint import load_entrypoint
from trek.experiments.package import unpack_once
from trek.experiments.reporting import ControlPlaneLogger
from trek.search.settings import LengthSetting
from trek.train.length import Length
from trek.train.rank_outcome import RankOutcome
from trek.train.session import Outcome, SessionSettings, train_trial
from trek.train.stopping import StopRequest
from trek.train.storage import open_storage
from trek.world import World
from trek.world.leaving import leave

PATIENCE_S = 120.0
"""How long a process waits at its start for a control plane that is being restarted."""


@dataclass(frozen=True)
class Place:
    """Which run of which trial this process belongs to, and where the control plane is."""

    trial_id: int
    run: int
    folder: Path
    address: Address
    address_file: Path | None

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Place:
        """Read what the supervisor left."""
        try:
            return cls(
                trial_id=int(environ["TREK_TRIAL_ID"]),
                run=int(environ["TREK_RUN"]),
                folder=Path(environ["TREK_RUN_DIR"]),
                address=Address(environ["TREK_MASTER"], environ.get("TREK_TOKEN", "")),
                address_file=Path(environ["TREK_ADDRESS_FILE"]) if environ.get("TREK_ADDRESS_FILE") else None,
            )
        except KeyError as error:
            raise InputError(
                f"{error.args[0]} is not set: a trial's process is started by Trek, not by hand."
            ) from None


def main(environ: Mapping[str, str] = os.environ, *, train: Callable[..., Outcome] = train_trial) -> int:
    """Run this process's part of its trial; returns the exit code."""
    place = Place.from_env(environ)
    world = World.from_env(environ)
    outcome = _run(place, world, train=train)
    if outcome.traceback:
        print(outcome.traceback.rstrip(), file=sys.stderr, flush=True)
    elif outcome.message:
        print(f"trek: error: {outcome.message}", file=sys.stderr, flush=True)
    outcome.write(place.folder)
    return outcome.exit_code


def _run(place: Place, world: World, *, train: Callable[..., Outcome]) -> RankOutcome:
    try:
        result = _train(place, world, train=train)
    except BaseException as error:  # noqa: BLE001 - SystemExit and the like are the user's too
        return RankOutcome.of_error(world.rank, error)
    return RankOutcome(world.rank, "done", stop_reason=result.stop_reason)


def _train(place: Place, world: World, *, train: Callable[..., Outcome]) -> Outcome:
    stop = StopRequest()
    signal.signal(signal.SIGTERM, lambda *_: stop.request("preempted"))
    with ExitStack() as stack:
        client = stack.enter_context(Client(place.address, relocate=lambda: _relocated(place)))
        assignment = _patiently(lambda: client.assignment(place.trial_id, run=place.run))
        code = place.folder / "code"
        unpack_once(_patiently(lambda: client.archive(assignment.archive)), code)
        os.chdir(code)
        config = ExperimentConfig.parse(assignment.config)
        trial_class = load_entrypoint(config.entrypoint, code)
        is_search = config.searcher.name != "single"
        logger = _logger(client, place, stop, is_search=is_search) if world.is_leader else None
        return train(
            trial_class,
            hparams=assignment.hparams,
            settings=session_settings(config, assignment),
            world=world,
            checkpoint_dir=assignment.checkpoint_dir,
            data=config.data,
            experiment_config=assignment.config,
            experiment_id=assignment.experiment_id,
            trial_id=assignment.trial_id,
            loggers=[stack.enter_context(logger)] if logger else [],
            stop=stop,
            resume=_resume(assignment),
            name=assignment.name,
        )


def session_settings(config: ExperimentConfig, assignment: Assignment) -> SessionSettings:
    """How to train, from the config and what the searcher asked of this trial."""
    storage, optimizations = config.checkpoint_storage, config.optimizations
    return SessionSettings(
        max_length=_length(assignment.length),
        validation_period=_length(assignment.validation_period) if assignment.validation_period else None,
        checkpoint_period=_checkpoint_period(config, assignment),
        report_period=config.scheduling_unit,
        strategy=config.effective_strategy,
        precision=config.precision,
        accumulate=optimizations.aggregation_frequency,
        clip_norm=optimizations.clip_norm,
        seed=assignment.seed,
        metric=config.searcher.metric,
        smaller_is_better=config.searcher.smaller_is_better,
        keep_best=storage.save_trial_best,
        keep_last=max(storage.save_trial_latest, 1),
        records_per_epoch=config.records_per_epoch,
        initial_validation=config.perform_initial_validation,
        show_progress=False,
    )


def _checkpoint_period(config: ExperimentConfig, assignment: Assignment) -> Length | None:
    """The config's; with the policy `all`, as often as the trial is validated."""
    if config.min_checkpoint_period is not None:
        return _length(config.min_checkpoint_period)
    if config.checkpoint_policy == "all":
        return _length(assignment.validation_period) if assignment.validation_period else Length(1, "epochs")
    return None


def _resume(assignment: Assignment) -> Path | Literal["latest"] | None:
    """The trial's own newest checkpoint, told of or not; before there is one, the one it was told to start from."""
    storage = open_storage(assignment.checkpoint_dir)
    if assignment.resume is None or storage.names():
        return "latest"
    return fetch_checkpoint(assignment.resume)


def _length(raw: Mapping[str, int] | LengthSetting) -> Length:
    setting = raw if isinstance(raw, LengthSetting) else LengthSetting.model_validate(dict(raw))
    return Length(setting.count, setting.unit)


def _logger(client: Client, place: Place, stop: StopRequest, *, is_search: bool) -> ControlPlaneLogger:
    def send(report: Report) -> Any:
        return client.report(place.trial_id, report)

    return ControlPlaneLogger(send, run=place.run, folder=place.folder, stop=stop, awaits_decisions=is_search)


def _relocated(place: Place) -> Address | None:
    """A control plane that was started anew may listen elsewhere; the trial's own token stays good."""
    moved = read_address(place.address_file) if place.address_file is not None else None
    return Address(moved.url, place.address.token) if moved is not None else None


def _patiently(ask: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except MasterUnreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    leave(main())
