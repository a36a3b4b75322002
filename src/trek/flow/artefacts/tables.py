"""Tables: Trek's and Arrow's, as files that are mapped and not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trek.flow.artefacts.base import ArtefactKind, is_instance


class TableKind(ArtefactKind):
    """A `trek.data.Table`, computed into shards of Arrow data."""

    def accepts(self, value: Any) -> bool:
        """Whether it is Trek's Table."""
        return is_instance(value, "trek", "Table")

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Compute it there."""
        value.persist(folder, storage="arrow")
        return {}

    def save_briefly(self, value: Any, folder: Path) -> dict[str, Any]:
        """Compute it into one Arrow file, so that each column is one piece of memory."""
        rows = value.to_arrow().combine_chunks()
        ArrowKind().save(rows, folder)
        return {"rows": rows.num_rows, "bytes": rows.nbytes}

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """A Table that reads from there."""
        from trek.data import Handle
        from trek.data import open as open_table

        if "rows" in facts:
            return Handle(ArrowKind().path(folder, {}), facts["rows"], facts["bytes"]).open()
        return open_table(folder)


class ArrowKind(ArtefactKind):
    """A `pyarrow.Table` in one Arrow file."""

    def accepts(self, value: Any) -> bool:
        """Whether it is Arrow's Table."""
        return is_instance(value, "pyarrow", "Table")

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Write it uncompressed, so that it can be mapped."""
        import pyarrow as pa

        folder.mkdir(parents=True)
        with pa.OSFile(str(self.path(folder, {})), "wb") as sink, pa.ipc.new_file(sink, value.schema) as writer:
            writer.write_table(value)
        return {}

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """Map it."""
        import pyarrow as pa

        return pa.ipc.open_file(pa.memory_map(str(self.path(folder, facts)))).read_all()

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """The file."""
        return folder / "table.arrow"
