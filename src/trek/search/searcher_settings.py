"""The `searcher` block of a config: what all searchers share, and the old spellings it may be written in.

The settings of one searcher are defined beside it; see `Searcher.settings_type`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_serializer, model_validator

from trek.metric_direction import is_smaller_better, named_direction
from trek.search.checked_numbers import CheckedNumbers

Unit = Literal["batches", "records", "epochs"]
MAX_LENGTH = 10**12
"""Longer than any real training; a larger number is a mistake, and would not fit into a database."""
UNITS: tuple[Unit, ...] = ("batches", "records", "epochs")


class LengthSetting(CheckedNumbers):
    """`{batches: n}`, `{records: n}` or `{epochs: n}`; a bare number counts batches."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    batches: int | None = Field(default=None, ge=1, le=MAX_LENGTH)
    """Batches over all processes."""
    records: int | None = Field(default=None, ge=1, le=MAX_LENGTH)
    """Records over all processes."""
    epochs: int | None = Field(default=None, ge=1, le=MAX_LENGTH)
    """Passes over the training data."""

    @model_validator(mode="before")
    @classmethod
    def _bare_number(cls, raw: Any) -> Any:
        return {"batches": raw} if isinstance(raw, int) and not isinstance(raw, bool) else raw

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1 or self.count is None:
            raise ValueError("a length must be one of {batches: n}, {records: n} and {epochs: n}")
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


class SearcherSettings(CheckedNumbers):
    """What every searcher has. `metric` is the name of a validation metric.

    A searcher's own settings derive from this and add what it needs; keys that it does not know are errors.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str
    """Which searcher it is."""
    metric: str = Field(min_length=1)
    """The validation metric that decides."""
    smaller_is_better: bool = Field(default_factory=lambda given: is_smaller_better(given["metric"]))
    """Whether a smaller value is better; by default, the name of the metric says it, else true."""

    is_search: ClassVar[bool] = True
    """Whether results decide what is trained next, so that a trial has to wait for decisions."""

    if TYPE_CHECKING:  # every searcher has it: most as a field, some derived from others

        @property
        def max_length(self) -> LengthSetting | None:
            """How long a trial trains that nothing stops; None if its own code decides."""

    @property
    def is_direction_derived(self) -> bool:
        """Whether `smaller_is_better` follows from the metric's name instead of being set."""
        return "smaller_is_better" not in self.model_fields_set

    def describe_direction(self) -> str:
        """Which value of the metric is best, and why: a sentence for people."""
        best = f"the {'smallest' if self.smaller_is_better else 'largest'} {self.metric} is best"
        if not self.is_direction_derived:
            return f"{best}, as searcher.smaller_is_better says."
        reason = "by its name" if named_direction(self.metric) is not None else "by default: its name does not say it"
        return f"{best} {reason}. Set searcher.smaller_is_better to choose."

    @property
    def length(self) -> LengthSetting:
        """What trials are measured against: `max_length`, or one epoch where the trial's own code decides."""
        return self.max_length or LengthSetting(epochs=1)


OLD_NAMES = {
    "async_halving": "asha",
    "sync_halving": "asha",
    "adaptive": "adaptive_asha",
    "adaptive_simple": "adaptive_asha",
}
OLD_LENGTHS = ("max_steps", "max_time", "max_batches", "max_records", "max_epochs")
OLD_BUDGETS = ("budget", "step_budget")
OLD_KEYS = {*OLD_LENGTHS, *OLD_BUDGETS, "target_trial_steps", "time_metric", "steps_per_round"}
OLD_KEYS |= {"source_checkpoint_uuid", "source_trial_id"}


def respell(raw: Mapping[str, Any], *, batches_per_step: int) -> dict[str, Any]:
    """The searcher block in today's spelling. Mistakes are left for validation to report."""
    new = dict(raw)
    name = new.get("name")
    if isinstance(name, str):
        new["name"] = OLD_NAMES.get(name, name)
    _respell_steps(new, "max_steps", "max_length", batches_per_step=batches_per_step)
    _respell_steps(new, "target_trial_steps", "max_length", batches_per_step=batches_per_step)
    _respell_steps(new, "step_budget", "budget", batches_per_step=batches_per_step)
    _respell_steps(new, "steps_per_round", "length_per_round", batches_per_step=batches_per_step)
    if "max_time" in new and "max_length" not in new:
        unit = str(new.pop("time_metric", "batches"))
        new["max_length"] = {unit: new.pop("max_time")}
    for unit in UNITS:
        if f"max_{unit}" in new and "max_length" not in new:
            new["max_length"] = {unit: new.pop(f"max_{unit}")}
    _respell_budget(new)
    return new


def _respell_budget(new: dict[str, Any]) -> None:
    """Rewrite the budget of a whole search to about as many trials as it pays for."""
    budget, length = _count(new.get("budget")), _count(new.get("max_length"))
    rungs, divisor = new.get("num_rungs", new.get("max_rungs", 5)), new.get("divisor", 4)
    if "max_trials" in new or not budget or not length or not isinstance(rungs, int) or rungs < 1 or rungs > 32:
        return
    if not isinstance(divisor, int | float) or divisor <= 1:
        return
    lengths = [max(int(length / divisor ** (rungs - 1 - i)), 1) for i in range(rungs)]
    per_trial = sum((one - before) / divisor**i for i, (before, one) in enumerate(pairwise([0, *lengths])))
    new["max_trials"] = max(round(budget / per_trial), 1)
    del new["budget"]


def _count(length: Any) -> int | None:
    """The number in a length, in whatever unit; None if it cannot be read."""
    value = next(iter(length.values()), None) if isinstance(length, Mapping) else length
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _respell_steps(new: dict[str, Any], old_key: str, new_key: str, *, batches_per_step: int) -> None:
    steps = new.get(old_key)
    if isinstance(steps, int) and not isinstance(steps, bool) and new_key not in new:
        new[new_key] = {"batches": new.pop(old_key) * batches_per_step}
