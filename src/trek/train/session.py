"""One training session of one Trial in this process: what `trek.fit` and the trials of an experiment both run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trek.train.length import Length
from trek.train.loggers.base import Logger
from trek.train.stopping import Reason, StopRequest
from trek.world import World


@dataclass(frozen=True)
class SessionSettings:
    """How to train; the Trial says what. Validated where it is made."""

    max_length: Length
    validation_period: Length | None = None
    """None: once an epoch where the data has epochs, and always at the end."""
    checkpoint_period: Length | None = None
    """None: at the end only."""
    report_period: int = 100
    """Training metrics are reported every so many batches."""
    strategy: str = "solo"
    precision: str = "fp32"
    accumulate: int = 1
    """Batches whose gradients make one optimizer step."""
    clip_norm: float | None = None
    seed: int = 0
    metric: str | None = None
    """The validation metric that decides which checkpoint is best."""
    smaller_is_better: bool = True
    keep_best: int = 1
    keep_last: int = 1
    records_per_epoch: int | None = None
    initial_validation: bool = False
    show_progress: bool = True


@dataclass(frozen=True)
class Outcome:
    """How a session ended."""

    batches: int
    stop_reason: Reason
    checkpoint: Path | None
    best_checkpoint: Path | None
    best_metrics: Mapping[str, float] = field(default_factory=dict)


def train_trial(
    trial_class: type[Any],
    *,
    hparams: Mapping[str, Any],
    settings: SessionSettings,
    world: World,
    checkpoint_dir: Path,
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
    raised it. With `resume` a checkpoint folder (or "latest" of `checkpoint_dir`, a fresh start when there is none).
    """
    raise NotImplementedError
