"""Data frames of pandas and Polars, in one Arrow file each, and bytes in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.flow.artefacts.base import ArtefactKind, is_instance
from trek.flow.artefacts.tables import ArrowKind


class FrameKind(ArtefactKind):
    """A pandas DataFrame or Series, with its index and types, or a Polars DataFrame."""

    def accepts(self, value: Any) -> bool:
        """Whether it is one of them."""
        return is_instance(value, "pandas", "DataFrame", "Series") or is_instance(value, "polars", "DataFrame")

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Write it as Arrow data, in which pandas notes its index and types."""
        if is_instance(value, "polars", "DataFrame"):
            ArrowKind().save(value.to_arrow(), folder)
            return {"type": "polars"}
        is_series = is_instance(value, "pandas", "Series")
        ArrowKind().save(_to_arrow(value.to_frame(_name_of(value)) if is_series else value), folder)
        return {"type": "series", "is_named": value.name is not None} if is_series else {"type": "pandas"}

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """The frame again."""
        table = ArrowKind().load(folder, {})
        if facts["type"] == "polars":
            import polars

            return polars.from_arrow(table)
        frame = table.to_pandas()
        if facts["type"] == "pandas":
            return frame
        series = frame.iloc[:, 0]
        return series if facts["is_named"] else series.rename(None)

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """The file."""
        return ArrowKind().path(folder, {})


class BytesKind(ArtefactKind):
    """Bytes, in a file."""

    def accepts(self, value: Any) -> bool:
        """Whether they are bytes."""
        return type(value) is bytes

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Write them."""
        folder.mkdir(parents=True)
        self.path(folder, {}).write_bytes(value)
        return {}

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """Read them."""
        return self.path(folder, facts).read_bytes()

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """The file."""
        return folder / "value.bin"


def _name_of(series: Any) -> Any:
    return "value" if series.name is None else series.name


def _to_arrow(frame: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(frame)
    except (pa.ArrowException, ValueError, TypeError, NotImplementedError) as error:
        why = " ".join(str(part) for part in error.args)
        raise InputError(f"a data frame cannot be stored: {why}. Give each column values of one type.") from error
