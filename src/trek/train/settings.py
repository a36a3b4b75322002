"""TrainSettings: how to train, defined in one place.

`trek.fit`, `trek.run` and the Traveler take its fields as keywords, a YAML config has them under `training`, and
`trek.arguments` makes command-line options from them. The Trial or the loop defines what is trained; the caller chooses
the number of processes and the name of the run. Loads no torch.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    ValidationError,
    WithJsonSchema,
)

from trek.errors import ConfigError
from trek.strategies.strategy_registry import STRATEGIES
from trek.train.length import Length
from trek.train.other_names import meant_by


@dataclass(frozen=True)
class ProfileSettings:
    """Trace batches `first` to `last`, counted from 1, into `path`."""

    first: int
    last: int
    path: Path | str | None = None
    """None: `profile.json` in the run's folder."""

    def __post_init__(self) -> None:
        if isinstance(self.path, str):
            object.__setattr__(self, "path", Path(self.path))
        if self.path is not None and not isinstance(self.path, Path):
            raise ConfigError(f"the path of a profile must be a file name, got {self.path!r}.")
        if not all(type(one) is int for one in (self.first, self.last)):
            raise ConfigError(f"a profile must be of whole numbers of batches, got {self.first!r} to {self.last!r}.")
        if not 1 <= self.first <= self.last:
            raise ConfigError(
                f"a profile of batches first to last must have 1 <= first <= last, got {self.first} to {self.last}."
            )


def _to_length(raw: Any) -> Any:
    if isinstance(raw, Length):
        return raw
    if isinstance(raw, Mapping) and len(raw) == 1 and next(iter(raw)) in ("batches", "records", "epochs"):
        [(unit, count)] = raw.items()
        return Length(count, unit)
    raise ValueError("must be trek.batches(n), trek.records(n) or trek.epochs(n), as in YAML {batches: n}")


LENGTH_SCHEMA = {
    "type": "object",
    "properties": {unit: {"type": "integer", "minimum": 1} for unit in ("batches", "records", "epochs")},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}
LengthField = Annotated[
    Length,
    BeforeValidator(_to_length),
    PlainSerializer(lambda length: {length.unit: length.count}),
    WithJsonSchema(LENGTH_SCHEMA),
]
_Count = Annotated[int, Field(strict=True, ge=1, lt=2**63)]
_Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TrainSettings(BaseModel):
    """How to train. Frozen. `of` makes one, and names an invalid value in one sentence."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    max_length: LengthField | None = None
    """How long to train; by default, until the loop itself ends."""
    validation_period: LengthField | None = None
    """How often to validate a Trial; by default every epoch. The end is always validated; a loop validates itself."""
    validation_lengths: tuple[LengthField, ...] = ()
    """Lengths at which to validate a Trial as well; without a period, it is validated only at these and at the end."""
    checkpoint_period: LengthField | None = None
    """How often to save, besides saves after validations. A run always ends with a save."""
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    """After which validations of a Trial to save: those that are the best so far, all, or none."""
    report_period: _Count = 100
    """Number of batches between reports of training metrics."""
    records_per_epoch: _Count | None = None
    """Number of records that count as one epoch in lengths and periods, instead of a pass over the data."""
    initial_validation: StrictBool = False
    """Validate a Trial before its first batch."""
    sanity_check: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = 1
    """Number of batches that a Trial trains and validates on trial before it begins, to find mistakes; 0 for none."""
    strategy: Annotated[str, AfterValidator(STRATEGIES.check)] | None = None
    """How replicas are kept in sync; by default `ddp` for several processes and `solo` for one."""
    strategy_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the strategy, such as `backend` or `timeout_s`."""
    elastic: Literal["fast", "exact"] = "fast"
    """Where workers come and go: `exact` gives the same bits with any number of workers, whoever joins or leaves."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of the forward pass."""
    accumulate: _Count = 1
    """Number of batches whose gradients are accumulated for one optimizer step."""
    clip_norm: _Amount | None = None
    """Maximum norm of the gradients of a step."""
    clip_value: _Amount | None = None
    """Maximum absolute value of each gradient element of a step."""
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of an exponential moving average of the weights, which is used for validation."""
    compile: StrictBool | str = False
    """Compile models with torch.compile; a string selects the backend."""
    capture: StrictBool = False
    """Run a Trial's training step as a CUDA graph."""
    deterministic: StrictBool = False
    """Use only deterministic algorithms of torch."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = 0
    """Seed of all random number generators."""
    metric: str | None = None
    """The validation metric that determines the best checkpoint; by default the loss."""
    smaller_is_better: StrictBool | None = None
    """Whether a smaller value of that metric is better; by default derived from its name."""
    keep_best: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = 1
    """Number of best checkpoints to keep."""
    keep_last: _Count = 1
    """Number of newest checkpoints to keep."""
    keep_every: _Count | None = None
    """Also keep every checkpoint whose number of batches is a multiple of this."""
    loggers: tuple[str | dict[str, Any], ...] = ()
    """Additional loggers: names, or dicts with the `name` and its settings."""
    show_progress: StrictBool = True
    """Show a progress bar, or lines of text where standard error is no terminal."""
    profile: ProfileSettings | None = None
    """Write a torch profiler trace of some batches."""
    on_nan: Literal["warn", "stop"] = "warn"
    """What to do about a training loss that is not a finite number: warn once, or end the run with an error."""
    hang_s: _Amount | None = 600.0
    """Seconds without a finished batch after which the ranks report where they are, and for whom they wait."""
    on_hang: Literal["report", "restart", "stop"] = "report"
    """What follows that report: nothing; a restart from the last checkpoint, twice at most for a cause; an error."""

    @classmethod
    def of(cls, base: TrainSettings | None = None, /, **named: Any) -> Self:
        """`base`, or the defaults, with the fields `named` changed; raises ConfigError for the first invalid field."""
        if base is not None and not isinstance(base, TrainSettings):
            raise ConfigError(f"settings must be a trek.TrainSettings, got {base!r}.")
        unknown = sorted(set(named) - set(cls.model_fields))
        if unknown:
            raise ConfigError(f"unknown setting {unknown[0]!r}.{_suggestion(unknown[0], named[unknown[0]])}")
        kept = {name: getattr(base, name) for name in base.model_fields_set} if base is not None else {}
        try:
            return cls(**{**kept, **named})
        except ValidationError as error:
            raise ConfigError(_sentence(error)) from None

    def with_default_paths(self, folder: Path) -> Self:
        """The same settings, with paths that are not set placed in `folder`."""
        if self.profile is None or self.profile.path is not None:
            return self
        return self.of(self, profile=replace(self.profile, path=folder / "profile.json"))


def _suggestion(name: str, value: Any) -> str:
    meant = meant_by(name, value)
    if meant is not None:
        return f" {meant}"
    near = difflib.get_close_matches(name, TrainSettings.model_fields, n=1, cutoff=0.6)
    return (
        f" Did you mean {near[0]!r}?" if near else f" Known settings: {', '.join(sorted(TrainSettings.model_fields))}."
    )


def _sentence(error: ValidationError) -> str:
    """The first problem as a sentence: the setting, what it must be, its value."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if message.endswith("."):  # a sentence of ours
        return message
    if first["type"] == "dataclass_type":
        message = "must be a trek.ProfileSettings"
    return f"{first['loc'][0]} {message}, got {first['input']!r}."
