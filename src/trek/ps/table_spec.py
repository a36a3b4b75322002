"""TableSpec: what a table of embedding rows is. Loads neither torch nor Numba."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trek.errors import ConfigError


class Initial(BaseModel):
    """How new rows begin: `uniform` from `low` to `high`, `normal` with `mean` and `std`, or `constant` `value`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["uniform", "normal", "constant", "zeros"] = "uniform"
    low: float = -0.05
    high: float = 0.05
    mean: float = 0.0
    std: float = Field(default=0.01, ge=0)
    value: float = 0.0


class TableSpec(BaseModel):
    """What a table is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    dim: int = Field(ge=1, le=1 << 20, strict=True)
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """How values are kept and sent; an optimizer's state is always float32."""
    initial: Initial = Initial()
    seed: int = 0
    admit_after: int = Field(default=1, ge=1, strict=True)
    """A row begins with the so-many-th push of its id; earlier gradients are dropped."""
    max_age: int | None = Field(default=None, ge=1, strict=True)
    """Rows without a push for more versions than that are removed."""
    max_rows: int | None = Field(default=None, ge=1, strict=True)
    """On each server; the rows that were pushed longest ago are removed first."""
    memory_bytes: int | None = Field(default=None, ge=1, strict=True)
    """Rows over that, on each server, are kept in files."""

    @classmethod
    def of(cls, **named: Any) -> TableSpec:
        """A spec; ConfigError names the first invalid value."""
        try:
            return cls(**named)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(
                f"table {named.get('name')!r}: {where}: {first['msg']}, got {first['input']!r}."
            ) from None
