"""One training session of one Trial in this process: what `trek.fit` and the trials of an experiment both run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trek.train.checkpointing.keeping import KeepPolicy
from trek.train.checkpointing.loading import describe_trial
from trek.train.length import Length
from trek.train.loggers.base import Logger
from trek.train.loop.profiling import ProfileSettings
from trek.train.loop.stopping import Reason, StopRequest, stop_on_signals
from trek.train.metrics.goal import Goal
from trek.train.trainer import Trainer, check_trial_class
from trek.train.traveler import Traveler
from trek.train.trial import Trial, TrialContext
from trek.world import World


@dataclass(frozen=True)
class SessionSettings:
    """How to train; the Trial says what. Validated where it is made."""

    max_length: Length
    validation_period: Length | None = None
    """None: once an epoch, and always at the end."""
    checkpoint_period: Length | None = None
    """None: when a validation is the best so far, and at the end."""
    report_period: int = 100
    """Training metrics are reported every so many batches."""
    strategy: str | None = None
    """None: `ddp` for several processes, else `solo`."""
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    """`backend`, `timeout_s`, `find_unused_parameters`, …: see the strategy."""
    precision: str = "fp32"
    accumulate: int = 1
    """Batches whose gradients make one optimizer step."""
    clip_norm: float | None = None
    clip_value: float | None = None
    ema_decay: float | None = None
    """Keep a moving average of the weights and validate with it."""
    seed: int = 0
    metric: str | None = None
    """The validation metric that decides which checkpoint is best; None: see `Goal`."""
    smaller_is_better: bool | None = None
    keep_best: int = 1
    keep_last: int = 1
    keep_every: int | None = None
    """Also keep each checkpoint whose number of batches is a multiple of this."""
    records_per_epoch: int | None = None
    initial_validation: bool = False
    show_progress: bool = True
    compile: bool | str = False
    """Compile models; with a name, by that torch.compile backend."""
    capture: bool = False
    """Run the training step as a CUDA graph."""
    deterministic: bool = False
    profile: ProfileSettings | None = None
    hang_s: float | None = 600.0
    """A rank that finishes no batch for so long says where it is."""


@dataclass(frozen=True)
class Outcome:
    """How a session ended. Paths are known to the leader alone."""

    batches: int
    stop_reason: Reason
    checkpoint: Path | None
    best_checkpoint: Path | None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """The table of epochs."""


def train_trial(
    trial_class: type[Trial],
    *,
    hparams: Mapping[str, Any],
    settings: SessionSettings,
    world: World,
    checkpoint_dir: Path | str | None,
    data: Mapping[str, Any] | None = None,
    experiment_config: Mapping[str, Any] | None = None,
    experiment_id: int = 0,
    trial_id: int = 0,
    loggers: Sequence[Logger] = (),
    stop: StopRequest | None = None,
    resume: Path | Literal["latest"] | None = None,
    name: str = "trial",
) -> Outcome:
    """Train `trial_class` to `settings.max_length` on this rank of `world`.

    Raises the user's own exceptions unchanged, `InputError` for a mistake Trek can name, `InvalidHP` as the Trial
    raised it. With `resume` a checkpoint folder, or "latest" of `checkpoint_dir`: a fresh start when there is none.
    """
    check_trial_class(trial_class)
    stop = stop or StopRequest()
    about = describe_trial(trial_class, hparams, data or {})
    traveler = _make_traveler(settings, world, checkpoint_dir, about=about, loggers=loggers, stop=stop)
    with stop_on_signals(stop), traveler:
        traveler.journal.begin(name=name, hparams=hparams)
        context = TrialContext(
            traveler,
            hparams=hparams,
            data=data,
            experiment_config=experiment_config,
            experiment_id=experiment_id,
            trial_id=trial_id,
        )
        trainer = Trainer(
            trial_class,
            context,
            max_length=settings.max_length,
            validation_period=settings.validation_period,
            checkpoint_period=settings.checkpoint_period,
            records_per_epoch=settings.records_per_epoch,
            initial_validation=settings.initial_validation,
            capture=settings.capture,
        )
        trainer.fit(traveler.archive.find(resume))
        traveler.archive.wait()
    return Outcome(
        batches=traveler.position.batches,
        stop_reason=stop.reason,
        checkpoint=traveler.archive.path("last"),
        best_checkpoint=traveler.archive.path("best"),
        epochs=traveler.journal.table.rows,
    )


def _make_traveler(
    settings: SessionSettings,
    world: World,
    checkpoint_dir: Path | str | None,
    *,
    about: Mapping[str, Any],
    loggers: Sequence[Logger],
    stop: StopRequest,
) -> Traveler:
    return Traveler(
        world=world,
        strategy=settings.strategy,
        strategy_options=settings.strategy_options,
        precision=settings.precision,
        accumulate=settings.accumulate,
        clip_norm=settings.clip_norm,
        clip_value=settings.clip_value,
        ema_decay=settings.ema_decay,
        seed=settings.seed,
        checkpoint_dir=checkpoint_dir,
        keep=KeepPolicy(best=settings.keep_best, last=settings.keep_last, every=settings.keep_every),
        trial=about,
        goal=Goal(settings.metric, settings.smaller_is_better),
        loggers=loggers,
        stop=stop,
        report_period=settings.report_period,
        show_progress=settings.show_progress,
        compile=settings.compile,
        deterministic=settings.deterministic,
        profile=settings.profile,
        hang_s=settings.hang_s,
    )
