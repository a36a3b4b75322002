"""The `searcher` block of a config: one model per searcher, and the old spellings it may be written in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

Unit = Literal["batches", "records", "epochs"]
MAX_LENGTH = 10**12
"""More than anybody trains; what is above it is a mistake, and a number no database holds."""
UNITS: tuple[Unit, ...] = ("batches", "records", "epochs")


class LengthSetting(BaseModel):
    """`{batches: n}`, `{records: n}` or `{epochs: n}`; a bare number counts batches."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batches: int | None = Field(default=None, ge=1, le=MAX_LENGTH)
    records: int | None = Field(default=None, ge=1, le=MAX_LENGTH)
    epochs: int | None = Field(default=None, ge=1, le=MAX_LENGTH)

    @model_validator(mode="before")
    @classmethod
    def _bare_number(cls, raw: Any) -> Any:
        return {"batches": raw} if isinstance(raw, int) and not isinstance(raw, bool) else raw

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1 or self.count is None:
            raise ValueError("a length is one of {batches: n}, {records: n} and {epochs: n}")
        return self

    @property
    def unit(self) -> Unit:
        """batches, records or epochs."""
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def count(self) -> int:
        """How many of them."""
        return next((getattr(self, unit) for unit in UNITS if getattr(self, unit) is not None), None)  # type: ignore[return-value]

    @model_serializer
    def _as_written(self) -> dict[str, int]:
        return {self.unit: self.count}


class SearcherSettings(BaseModel):
    """What every searcher has. `metric` is the name of a validation metric."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    metric: str = Field(min_length=1)
    smaller_is_better: bool = True


class SingleSettings(SearcherSettings):
    """One trial."""

    name: Literal["single"]
    max_length: LengthSetting


class RandomSettings(SearcherSettings):
    """Independent draws."""

    name: Literal["random"]
    max_length: LengthSetting
    max_trials: int = Field(ge=1, le=1_000_000)
    max_concurrent_trials: int = Field(default=16, ge=0)


class GridSettings(SearcherSettings):
    """Every point of the grid."""

    name: Literal["grid"]
    max_length: LengthSetting
    max_concurrent_trials: int = Field(default=16, ge=0)


class AshaSettings(SearcherSettings):
    """Asynchronous successive halving; with `promote` trials wait at a rung to be promoted, instead of running on."""

    name: Literal["asha"]
    max_length: LengthSetting
    max_trials: int = Field(ge=1, le=1_000_000)
    num_rungs: int = Field(default=5, ge=1, le=32)
    divisor: float = Field(default=4, gt=1)
    max_concurrent_trials: int = Field(default=16, ge=0)
    promote: bool = False


class AdaptiveAshaSettings(SearcherSettings):
    """Several ASHA brackets that stop bad trials more or less early."""

    name: Literal["adaptive_asha"]
    max_length: LengthSetting
    max_trials: int = Field(ge=1, le=1_000_000)
    mode: Literal["aggressive", "standard", "conservative"] = "standard"
    divisor: float = Field(default=4, gt=1)
    max_rungs: int = Field(default=5, ge=1, le=32)
    max_concurrent_trials: int = Field(default=16, ge=0)
    bracket_rungs: list[Annotated[int, Field(ge=1, le=32)]] = Field(default_factory=list)
    promote: bool = False


class HyperbandSettings(SearcherSettings):
    """Hyperband: brackets of synchronous successive halving, from the most to the least aggressive."""

    name: Literal["hyperband"]
    max_length: LengthSetting
    divisor: float = Field(default=3, gt=1)
    max_concurrent_trials: int = Field(default=16, ge=0)


class ReplaceSettings(BaseModel):
    """Which share of the population is replaced by the best after each round."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    truncate_fraction: float = Field(default=0.2, ge=0, le=0.5)


class ExploreSettings(BaseModel):
    """How a copy's hyperparameters differ from its parent's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    resample_probability: float = Field(default=0.2, ge=0, le=1)
    perturb_factor: float = Field(default=0.2, ge=0, le=1)


class PbtSettings(SearcherSettings):
    """Population based training: after each round the worst go on from a copy of the best."""

    name: Literal["pbt"]
    population_size: int = Field(ge=1, le=10_000)
    num_rounds: int = Field(ge=1, le=1_000_000)
    length_per_round: LengthSetting
    replace_function: ReplaceSettings = ReplaceSettings()
    explore_function: ExploreSettings = ExploreSettings()

    @property
    def max_length(self) -> LengthSetting:
        """What a trial that is never replaced trains."""
        return LengthSetting.model_validate({self.length_per_round.unit: self.length_per_round.count * self.num_rounds})


class OptunaSettings(SearcherSettings):
    """Optuna's samplers: each trial is chosen by what the ones before it came to."""

    name: Literal["optuna"]
    max_length: LengthSetting
    max_trials: int = Field(ge=1, le=100_000)
    sampler: Literal["tpe", "cmaes", "gp"] = "tpe"
    max_concurrent_trials: int = Field(default=4, ge=0)
    """Few at a time: a trial that is chosen before others have ended learns nothing from them."""


AnySearcherSettings = Annotated[
    SingleSettings
    | RandomSettings
    | GridSettings
    | AshaSettings
    | AdaptiveAshaSettings
    | HyperbandSettings
    | PbtSettings
    | OptunaSettings,
    Field(discriminator="name"),
]
SETTINGS: dict[str, type[SearcherSettings]] = {
    "single": SingleSettings,
    "random": RandomSettings,
    "grid": GridSettings,
    "asha": AshaSettings,
    "adaptive_asha": AdaptiveAshaSettings,
    "hyperband": HyperbandSettings,
    "pbt": PbtSettings,
    "optuna": OptunaSettings,
}

OLD_NAMES = {
    "async_halving": "asha",
    "sync_halving": "asha",
    "adaptive": "adaptive_asha",
    "adaptive_simple": "adaptive_asha",
}
OLD_LENGTHS = ("max_steps", "max_time", "max_batches", "max_records", "max_epochs")
OLD_KEYS = {*OLD_LENGTHS, "time_metric", "steps_per_round"}


def respell(raw: Mapping[str, Any], *, batches_per_step: int) -> dict[str, Any]:
    """The searcher block in today's spelling. What is wrong is left for validation to name."""
    new = dict(raw)
    name = new.get("name")
    if isinstance(name, str):
        new["name"] = OLD_NAMES.get(name, name)
    _respell_steps(new, "max_steps", "max_length", batches_per_step=batches_per_step)
    _respell_steps(new, "steps_per_round", "length_per_round", batches_per_step=batches_per_step)
    if "max_time" in new and "max_length" not in new:
        unit = str(new.pop("time_metric", "batches"))
        new["max_length"] = {unit: new.pop("max_time")}
    for unit in UNITS:
        if f"max_{unit}" in new and "max_length" not in new:
            new["max_length"] = {unit: new.pop(f"max_{unit}")}
    return new


def _respell_steps(new: dict[str, Any], old_key: str, new_key: str, *, batches_per_step: int) -> None:
    steps = new.get(old_key)
    if isinstance(steps, int) and not isinstance(steps, bool) and new_key not in new:
        new[new_key] = {"batches": new.pop(old_key) * batches_per_step}
