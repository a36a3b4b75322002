"""Every artefact kind keeps the contract, and one of another package is found by its values."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from trek.data import Table
from trek.flow.artefacts import KINDS, ArtefactKind, Stored, kind_of, store_value
from trek.flow.artefacts.plain import INLINE_BYTES
from trek.testing.artefact_conformance import ArtefactConformance
from trek.testing.plugins import plugin_package


class TestPlain(ArtefactConformance):
    """Plain data, in the records."""

    kind = kind_of("json")

    def make(self) -> Any:
        return {"a": (1, None), 2: [0.5, "text"]}


class TestLargePlain(TestPlain):
    """Plain data, in a file."""

    def make(self) -> Any:
        return ["x" * INLINE_BYTES]


class TestArrays(ArtefactConformance):
    """NumPy."""

    kind = kind_of("array")

    def make(self) -> Any:
        return {"x": np.arange(4), "y": np.ones((2, 2))}

    def same(self, one: Any, other: Any) -> bool:
        return list(one) == list(other) and all(np.array_equal(one[name], other[name]) for name in one)


class TestTensors(ArtefactConformance):
    """Torch."""

    kind = kind_of("tensor")

    def make(self) -> Any:
        return torch.arange(6).reshape(2, 3)

    def same(self, one: Any, other: Any) -> bool:
        return torch.equal(one, other)


class TestArrow(ArtefactConformance):
    """Arrow."""

    kind = kind_of("arrow")

    def make(self) -> Any:
        return pa.table({"x": [1, 2, None], "s": ["a", "b", "c"]})

    def same(self, one: Any, other: Any) -> bool:
        return bool(one.equals(other))


class TestTables(ArtefactConformance):
    """Trek's Tables."""

    kind = kind_of("table")

    def make(self) -> Any:
        return Table.of({"x": np.arange(5)}, num_partitions=2)

    def same(self, one: Any, other: Any) -> bool:
        return bool(one.to_arrow().equals(other.to_arrow()))


class TestPaths(ArtefactConformance):
    """A file that stays where it is."""

    kind = kind_of("path")

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._path = tmp_path_factory.mktemp("elsewhere") / "file.txt"
        self._path.write_text("content")

    def make(self) -> Any:
        return self._path

    def same(self, one: Any, other: Any) -> bool:
        return bool(one.read_text() == other.read_text())


def test_every_kind_is_covered() -> None:
    """`checkpoint` is a path with a manifest, see test_flow_experiment; `list` is made of others by the runner."""
    covered = {type(suite.kind) for suite in ArtefactConformance.__subclasses__() if hasattr(suite, "kind")}
    left = {name for name in KINDS.names() if KINDS.load(name) not in covered}
    assert left == {"checkpoint", "list"}


class PickleKind(ArtefactKind):
    """Does what none may do: pickles, remembers where it wrote, and takes everything."""

    def accepts(self, value: Any) -> bool:
        return True

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        folder.mkdir(parents=True)
        (folder / "value").write_bytes(pickle.dumps(value))
        return {"at": str(folder / "value")}

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        return pickle.loads(Path(facts["at"]).read_bytes())


@pytest.mark.parametrize("test", ["test_it_accepts_its_values_and_no_others", "test_its_files_may_be_moved"])
def test_a_kind_that_breaks_the_contract_fails_the_suite(test: str, tmp_path: Path) -> None:
    class Suite(TestPlain):
        kind = PickleKind()

    arguments = [tmp_path] if "moved" in test else []
    with pytest.raises((AssertionError, FileNotFoundError)):
        getattr(Suite(), test)(*arguments)


def test_a_kind_that_unpickles_fails_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = TestPlain()
    suite.kind = PickleKind()
    with pytest.raises(AssertionError, match="a pickle was loaded"):
        suite.test_nothing_is_unpickled(tmp_path, monkeypatch)


SOURCE = """
from trek.flow.artefacts import ArtefactKind


class ComplexKind(ArtefactKind):
    def accepts(self, value):
        return isinstance(value, complex)

    def save(self, value, folder):
        return {"parts": [value.real, value.imag]}

    def load(self, folder, facts):
        return complex(*facts["parts"])
"""


class TestAPlugin(ArtefactConformance):
    """A kind of another package."""

    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        points = {"trek.artefacts": {"complex": "complex_kind:ComplexKind"}}
        folder = tmp_path_factory.mktemp("package")
        with plugin_package(folder, module="complex_kind", source=SOURCE, entry_points=points, refresh=KINDS):
            self.kind = kind_of("complex")
            yield

    def make(self) -> Any:
        return 1 + 2j

    def test_its_record_names_it(self, tmp_path: Path) -> None:
        stored = store_value(1 + 2j, tmp_path / "output")
        assert stored.kind == "complex"
        assert Stored.from_json(stored.to_json()).load() == 1 + 2j
