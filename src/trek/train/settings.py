"""TrainSettings: how to train, written down once.

`trek.fit`, `trek.run` and the Traveler take its fields as keywords, a YAML config holds them under `training`, and
`trek.arguments` makes command-line options of them. What is trained is the Trial's or the loop's matter; on how many
processes, and under which name, is the caller's. Loads no torch.
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


@dataclass(frozen=True)
class ProfileSettings:
    """Trace batches `first` to `last`, counted from 1, into `path`."""

    first: int
    last: int
    path: Path | None = None
    """None: `profile.json` in the run's folder."""

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise ConfigError(
                f"a profile covers batches first to last with 1 <= first <= last, got {self.first} to {self.last}."
            )


def _to_length(raw: Any) -> Any:
    if isinstance(raw, Length):
        return raw
    if isinstance(raw, Mapping) and len(raw) == 1 and next(iter(raw)) in ("batches", "records", "epochs"):
        [(unit, count)] = raw.items()
        return Length(count, unit)
    raise ValueError("must be trek.batches(n), trek.records(n) or trek.epochs(n)")


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
_Count = Annotated[int, Field(strict=True, ge=1)]
_Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TrainSettings(BaseModel):
    """How to train. Frozen, and valid wherever there is one."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    max_length: LengthField | None = None
    """How far to train; without it, as far as the loop itself goes."""
    validation_period: LengthField | None = None
    """How often to validate; by default every epoch. The end of a run is always validated."""
    checkpoint_period: LengthField | None = None
    """How often to save; by default when a validation is the best so far. The end of a run is always saved."""
    report_period: _Count = 100
    """Training metrics are reported every so many batches."""
    records_per_epoch: _Count | None = None
    """Count epochs in periods and lengths as so many records, instead of passes over the data."""
    initial_validation: StrictBool = False
    """Validate before the first batch."""
    strategy: Annotated[str, AfterValidator(STRATEGIES.check)] | None = None
    """How replicas stay together; by default `ddp` for several processes and `solo` for one."""
    strategy_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the strategy, such as `backend` or `timeout_s`."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """What the forward pass computes in."""
    accumulate: _Count = 1
    """Batches whose gradients make one optimizer step."""
    clip_norm: _Amount | None = None
    """Largest norm of the gradients of a step."""
    clip_value: _Amount | None = None
    """Largest absolute value in the gradients of a step."""
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Keep a moving average of the weights, and validate with it."""
    compile: StrictBool | str = False
    """Compile models with torch.compile; a name chooses its backend."""
    capture: StrictBool = False
    """Run the training step as a CUDA graph."""
    deterministic: StrictBool = False
    """Use torch's deterministic algorithms."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = 0
    """Seed of everything random."""
    metric: str | None = None
    """The validation metric that decides which checkpoint is best; by default the loss."""
    smaller_is_better: StrictBool | None = None
    """Whether that metric is to become small; by default its name decides."""
    keep_best: Annotated[int, Field(strict=True, ge=0)] = 1
    """Best checkpoints to keep."""
    keep_last: _Count = 1
    """Newest checkpoints to keep."""
    keep_every: _Count | None = None
    """Also keep each checkpoint whose number of batches is a multiple of this."""
    loggers: tuple[str, ...] = ()
    """Loggers besides the run's own, by name."""
    show_progress: StrictBool = True
    """Draw a progress bar."""
    profile: ProfileSettings | None = None
    """Write a torch profiler trace of some batches."""
    hang_s: _Amount | None = 600.0
    """A rank that finishes no batch for so long says where it is."""

    @classmethod
    def of(cls, base: TrainSettings | None = None, /, **named: Any) -> Self:
        """`base`, or the defaults, with `named` fields changed; a ConfigError names the first that is wrong."""
        unknown = sorted(set(named) - set(cls.model_fields))
        if unknown:
            raise ConfigError(f"there is no setting {unknown[0]!r}.{_suggestion(unknown[0])}")
        kept = {name: getattr(base, name) for name in base.model_fields_set} if base is not None else {}
        try:
            return cls(**{**kept, **named})
        except ValidationError as error:
            raise ConfigError(_sentence(error)) from None

    def within(self, folder: Path) -> Self:
        """The same, with files that have no place of their own in `folder`."""
        if self.profile is None or self.profile.path is not None:
            return self
        return self.of(self, profile=replace(self.profile, path=folder / "profile.json"))


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name, TrainSettings.model_fields, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else f" Settings are: {', '.join(sorted(TrainSettings.model_fields))}."


def _sentence(error: ValidationError) -> str:
    """The first thing wrong: which setting, what it must be, what it is."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if first["type"] == "value_error" and not message.startswith("must be"):
        return message  # a sentence already
    return f"{first['loc'][0]} {message}, got {first['input']!r}."
