"""One training session of one Trial in this process, used by `trek.fit` and by the trials of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trek.train.checkpointing.loading import describe_trial
from trek.train.checkpointing.stores import Storage
from trek.train.folders import leaders_folders
from trek.train.loggers.base import JobIdentity, Logger
from trek.train.loop.data_wait import DataWait
from trek.train.loop.stopping import Reason, StopOnSignals, StopRequest
from trek.train.settings import TrainSettings
from trek.train.trainer import Trainer, check_trial_class
from trek.train.traveler import Traveler
from trek.train.trial import Trial
from trek.train.trial_host import TrialHost
from trek.world import World


@dataclass(frozen=True)
class Outcome:
    """How a session ended, on every rank alike."""

    batches: int
    stop_reason: Reason
    folder: Path
    """The folder of the run."""
    checkpoint: Path | None
    best_checkpoint: Path | None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """The table of epochs."""


def train_trial(
    trial_class: type[Trial],
    *,
    hparams: Mapping[str, Any],
    settings: TrainSettings,
    world: World,
    checkpoint_dir: Path | str | Storage | None,
    folder: Path | None = None,
    data: Mapping[str, Any] | None = None,
    experiment_config: Mapping[str, Any] | None = None,
    experiment_id: int = 0,
    trial_id: int = 0,
    loggers: Sequence[Logger] = (),
    stop: StopRequest | None = None,
    resume: Path | Literal["latest"] | None = None,
    name: str = "trial",
    owner: str | None = None,
    job: JobIdentity | None = None,
    host: TrialHost | None = None,
    wait: DataWait | None = None,
) -> Outcome:
    """Train `trial_class` to `settings.max_length` on this rank of `world`.

    Exceptions of the user's code, `InvalidHP` among them, are raised unchanged; mistakes that Trek detects are raised
    as `InputError`. `resume` is a checkpoint folder, or "latest" for the newest one in `checkpoint_dir`; if there is
    none, training starts from the beginning. The settings of `host` override `settings`. With an `owner`, which is
    written to the checkpoints, none is deleted here. `job` is what loggers identify the run by. `wait` counts how long
    training waits for data.
    """
    check_trial_class(trial_class)
    stop = stop or StopRequest()
    traveler = Traveler(
        settings,
        world=world,
        host=host,
        checkpoint_dir=checkpoint_dir,
        folder=folder,
        resume=resume,
        loggers=loggers,
        stop=stop,
        trial=describe_trial(trial_class, hparams, data or {}),
        owner=owner,
        job=job,
        wait=wait,
    )
    with StopOnSignals(stop), traveler:
        traveler.journal.begin(name=name, hparams=hparams)
        context = trial_class.context_class(
            traveler,
            hparams=hparams,
            data=data,
            experiment_config=experiment_config,
            experiment_id=experiment_id,
            trial_id=trial_id,
        )
        Trainer(trial_class, context).fit()
        traveler.archive.wait()
        paths = traveler.group.together("result", lambda: _result_folders(traveler, folder))
    own, last, best = (Path(path) if path else None for path in paths)
    return Outcome(
        batches=traveler.position.batches,
        stop_reason=stop.reason,
        folder=own or traveler.folder,
        checkpoint=last,
        best_checkpoint=best,
        epochs=traveler.journal.table.rows,
    )


def _result_folders(traveler: Traveler, folder: Path | None) -> list[str | None]:
    """The leader's: of the run, and of its newest and its best checkpoint."""
    saved = (traveler.archive.path("last"), traveler.archive.path("best"))
    return leaders_folders(traveler.strategy, folder or traveler.folder, *saved)
