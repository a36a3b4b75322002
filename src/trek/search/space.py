"""The hyperparameter space: what may vary, sampling it, and laying a grid over it.

Knows nothing of searchers. A space is a nested mapping whose leaves are constants or parameters with a `type`.

A mapping with a `type` that is not known is a nested constant, such as `{type: adam, lr: 0.1}`, unless it is meant as a
parameter; then it is an error. It is meant as one if it has `minval`, `maxval` or `vals`, or if it has only keys of
parameters and its type resembles a known one, such as `{type: integer}`. `{type: const, val: {…}}` makes any mapping a
constant.
"""

from __future__ import annotations

import difflib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from trek.errors import ConfigError
from trek.search.checked_numbers import CheckedNumbers, describe_invalid

Path = tuple[str, ...]
TYPES = ("const", "int", "double", "log", "categorical")
_OTHER_NAMES = {
    "integer": "int", "randint": "int", "float": "double", "uniform": "double", "real": "double",
    "loguniform": "log", "log_uniform": "log", "choice": "categorical", "enum": "categorical", "constant": "const",
}  # fmt: skip
"""What other tools call these types."""
_RANGE_KEYS = {"minval", "maxval", "vals"}
_PARAMETER_KEYS = {"type", "val", "count", "base", "when", *_RANGE_KEYS}


class Parameter(CheckedNumbers):
    """One thing that may vary. `when` names other parameters, by dotted path, and the values under which it exists."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    when: dict[str, Any] | None = None
    """Other parameters, by dotted names, and the values that they must have for this one to exist."""

    def sample(self, rng: random.Random) -> Any:
        """One value at random."""
        raise NotImplementedError

    def grid(self) -> list[Any]:
        """The values a grid search tries, in order."""
        raise NotImplementedError


class Const(Parameter):
    """One value."""

    type: Literal["const"] = "const"
    val: Any
    """The value."""

    def sample(self, rng: random.Random) -> Any:
        return self.val

    def grid(self) -> list[Any]:
        return [self.val]


class _Ranged(Parameter):
    minval: float
    """The lower bound; of `log`, an exponent."""
    maxval: float
    """The upper bound; of `log`, an exponent."""
    count: int | None = Field(default=None, ge=1, le=1_000_000)
    """How many points of it a grid has."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.minval > self.maxval:
            raise ValueError(f"minval {self.minval} is above maxval {self.maxval}; swap them")
        if not math.isfinite(float(self.maxval) - self.minval):
            raise ValueError(f"minval {self.minval} and maxval {self.maxval} are too far apart; bring them closer")
        return self

    def _steps(self) -> list[float]:
        if self.count is None:
            raise ConfigError("a grid search needs a count for every int, double and log parameter")
        if self.count == 1:
            return [(self.minval + self.maxval) / 2]
        width, gaps = self.maxval - self.minval, self.count - 1
        return [*(self.minval + i * width / gaps for i in range(gaps)), self.maxval]


class Int(_Ranged):
    """A whole number from minval to maxval, both included."""

    type: Literal["int"]
    minval: int
    """The smallest value."""
    maxval: int
    """The largest value."""

    def sample(self, rng: random.Random) -> int:
        return rng.randint(self.minval, self.maxval)

    def grid(self) -> list[int]:
        if self.count is None and self.maxval - self.minval < 100:
            return list(range(self.minval, self.maxval + 1))
        return sorted({_round_half_away(value) for value in self._steps()})


class Double(_Ranged):
    """A number from minval to maxval, evenly likely."""

    type: Literal["double"]

    def sample(self, rng: random.Random) -> float:
        return rng.uniform(self.minval, self.maxval)

    def grid(self) -> list[float]:
        return self._steps()


class Log(_Ranged):
    """base ** x, with x from minval to maxval, evenly likely: the bounds are exponents."""

    type: Literal["log"]
    base: float = Field(default=10.0, gt=0)
    """The base of the power."""

    @model_validator(mode="after")
    def _is_finite(self) -> Self:
        try:
            bounds = self.base**self.minval, self.base**self.maxval
        except OverflowError:
            bounds = (math.inf, math.inf)
        if not all(0 < bound < math.inf for bound in bounds):
            raise ValueError(
                f"base {self.base} to the power of {self.minval} … {self.maxval} is not a finite number above 0; "
                "minval and maxval are exponents, such as -4 and -1"
            )
        return self

    def sample(self, rng: random.Random) -> float:
        return float(self.base ** rng.uniform(self.minval, self.maxval))

    def grid(self) -> list[float]:
        return [float(self.base**exponent) for exponent in self._steps()]


class Categorical(Parameter):
    """One of a list of values."""

    type: Literal["categorical"]
    vals: list[Any] = Field(min_length=1)
    """The values."""

    def sample(self, rng: random.Random) -> Any:
        return rng.choice(self.vals)

    def grid(self) -> list[Any]:
        return list(self.vals)


AnyParameter = Annotated[Const | Int | Double | Log | Categorical, Field(discriminator="type")]
_ADAPTER: TypeAdapter[Const | Int | Double | Log | Categorical] = TypeAdapter(AnyParameter)


def _round_half_away(value: float) -> int:
    """The nearest whole number, halves away from zero, as Determined rounds; Python rounds halves to even."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def leaves(raw: Mapping[str, Any], at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf of a space as written, with its path: everything but plain nested mappings."""
    for key, value in raw.items():
        if isinstance(value, Mapping) and not _is_parameter(value):
            yield from leaves(value, (*at, str(key)))
        else:
            yield (*at, str(key)), value


def parse_parameter(raw: Any) -> Parameter:
    """A parameter from one leaf; a bare value is a constant.

    Raises pydantic's ValidationError, or ConfigError for a type that is not known.
    """
    if isinstance(raw, Mapping):
        if raw.get("type") not in TYPES:
            raise ConfigError(_unknown_type(raw))
        return _ADAPTER.validate_python(dict(raw))
    return Const(val=raw)


def _is_parameter(raw: Mapping[str, Any]) -> bool:
    """Whether a mapping is meant as a parameter; see the module."""
    kind = raw.get("type")
    if kind is None or isinstance(kind, Mapping):
        return False
    if kind in TYPES or _RANGE_KEYS & set(raw):
        return True
    return set(raw) <= _PARAMETER_KEYS and _nearest_type(kind) is not None


def _nearest_type(kind: Any) -> str | None:
    name = str(kind).lower()
    near = difflib.get_close_matches(name, TYPES, n=1, cutoff=0.6)
    return _OTHER_NAMES.get(name) or next(iter(near), None)


def _unknown_type(raw: Mapping[str, Any]) -> str:
    kind = raw.get("type")
    near = _nearest_type(kind)
    remedy = f"Did you mean {near!r}?" if near else ""
    return " ".join(
        part
        for part in (
            f"{kind!r} is not a type of hyperparameter.",
            remedy,
            f"Known types: {', '.join(TYPES)}. For a constant mapping, write {{type: const, val: {{…}}}}.",
        )
        if part
    )


class Space:
    """A parsed space. Sampling goes through the leaves in the order they are written."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.parameters: dict[Path, Parameter] = {path: _parse_at(path, leaf) for path, leaf in leaves(raw)}
        self._check_conditions()

    @property
    def varies(self) -> bool:
        """Whether two draws can differ."""
        return any(not isinstance(parameter, Const) for parameter in self.parameters.values())

    def sample(self, rng: random.Random) -> dict[str, Any]:
        """One point of the space, nested as the space is."""
        return self.assemble({path: parameter.sample(rng) for path, parameter in self.parameters.items()})

    def grid(self) -> Sequence[dict[str, Any]]:
        """Every point of the grid, the last parameter varying fastest; points that conditions make equal count once."""
        points = _GridPoints(self, {path: self._grid_of(path) for path in self.parameters})
        if not any(parameter.when for parameter in self.parameters.values()):
            return points
        return list({repr(point): point for point in points}.values())

    def grid_size(self) -> int:
        """Points of the grid, before conditions make some equal."""
        return math.prod(len(self._grid_of(path)) for path in self.parameters)

    def perturb(
        self, point: Mapping[str, Any], *, rng: random.Random, resample_probability: float, factor: float
    ) -> dict[str, Any]:
        """A point near `point`: numbers move by `factor` up or down within their bounds, or are drawn again."""
        values: dict[Path, Any] = {}
        for path, parameter in self.parameters.items():
            old = _lookup(point, path)
            if old is _ABSENT or rng.random() < resample_probability or isinstance(parameter, Categorical):
                values[path] = parameter.sample(rng)
            else:
                values[path] = _nudge(parameter, old, up=rng.random() < 0.5, factor=factor)
        return self.assemble(values)

    def _grid_of(self, path: Path) -> list[Any]:
        try:
            return list({repr(value): value for value in self.parameters[path].grid()}.values())
        except ConfigError as error:
            raise ConfigError(f"hyperparameters.{'.'.join(path)} has no count: {error}.") from None

    def assemble(self, values: Mapping[Path, Any]) -> dict[str, Any]:
        """The point with these values, nested as the space is; parameters that its conditions exclude are left out."""
        point: dict[str, Any] = {}
        for path, value in values.items():
            if self._exists(path, values):
                inner = point
                for key in path[:-1]:
                    inner = inner.setdefault(key, {})
                inner[path[-1]] = value
        return point

    def _exists(self, path: Path, values: Mapping[Path, Any]) -> bool:
        conditions = self.parameters[path].when or {}
        for dotted, wanted in conditions.items():
            other = tuple(dotted.split("."))
            allowed = wanted if isinstance(wanted, Sequence) and not isinstance(wanted, str) else [wanted]
            if values[other] not in allowed or not self._exists(other, values):
                return False
        return True

    def _check_conditions(self) -> None:
        order = {path: index for index, path in enumerate(self.parameters)}
        for path, parameter in self.parameters.items():
            for dotted in parameter.when or {}:
                other = tuple(dotted.split("."))
                if order.get(other, len(order)) >= order[path]:
                    raise ConfigError(
                        f"hyperparameters.{'.'.join(path)} is conditional on {dotted!r}, which is not written before "
                        "it. Name an earlier hyperparameter, with dots for nested ones."
                    )


class _GridPoints(Sequence[dict[str, Any]]):
    """The points of a grid without conditions, each made when it is asked for: a grid may have very many."""

    def __init__(self, space: Space, choices: Mapping[Path, Sequence[Any]]) -> None:
        self._space = space
        self._choices = choices

    def __len__(self) -> int:
        return math.prod(len(choices) for choices in self._choices.values())

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        values: dict[Path, Any] = {}
        for path, choices in reversed(list(self._choices.items())):
            index, place = divmod(index, len(choices))
            values[path] = choices[place]
        return self._space.assemble({path: values[path] for path in self._choices})


def _parse_at(path: Path, leaf: Any) -> Parameter:
    try:
        return parse_parameter(leaf)
    except ConfigError as error:
        raise ConfigError(f"hyperparameters.{'.'.join(path)}: {error}") from None
    except ValidationError as error:
        raise ConfigError(describe_invalid(error, "hyperparameters", *path, without=TYPES)) from None


_ABSENT = object()


def _lookup(point: Mapping[str, Any], path: Path) -> Any:
    value: Any = point
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return _ABSENT
        value = value[key]
    return value


def _nudge(parameter: Parameter, old: Any, *, up: bool, factor: float) -> Any:
    scale = 1 + factor if up else 1 - factor
    if isinstance(parameter, Int):
        return min(max(round(old * scale), parameter.minval), parameter.maxval)
    if isinstance(parameter, Double):
        return min(max(old * scale, parameter.minval), parameter.maxval)
    if isinstance(parameter, Log):
        low, high = sorted((parameter.base**parameter.minval, parameter.base**parameter.maxval))
        return min(max(old * scale, low), high)
    return parameter.sample(random.Random(0))  # noqa: S311 - a constant draws nothing
