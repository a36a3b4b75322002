"""What every ArtefactKind must do, as tests: subclass `ArtefactConformance` and say what is kept.

class TestMyKind(ArtefactConformance):
    kind = MyKind()

    def make(self) -> Any:
        return MyValue(1, 2)

    def same(self, one: Any, other: Any) -> bool:
        return one == other
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, NoReturn

import pytest

from trek.flow.artefacts import ArtefactKind, store_value


class ArtefactConformance:
    """The contract of `trek.flow.artefacts.base`, one promise a test."""

    kind: ArtefactKind
    """Override: the kind under test, which must also be registered."""

    def make(self) -> Any:
        """Override: a value of the kind, equal each time."""
        raise NotImplementedError

    def same(self, one: Any, other: Any) -> bool:
        """Override where `==` does not say whether a value is as it was."""
        return type(one) is type(other) and bool(one == other)

    def test_it_accepts_its_values_and_no_others(self) -> None:
        """accepts."""
        assert self.kind.accepts(self.make())
        assert not self.kind.accepts(object())
        assert not self.kind.accepts(ArtefactConformance)

    def test_a_value_comes_back_as_it_was(self, tmp_path: Path) -> None:
        """save, load; as often as it is asked for."""
        facts = self.kind.save(self.make(), tmp_path / "kept")
        assert self.same(self.kind.load(tmp_path / "kept", facts), self.make())
        assert self.same(self.kind.load(tmp_path / "kept", facts), self.make())

    def test_a_value_that_was_kept_briefly_comes_back(self, tmp_path: Path) -> None:
        """save_briefly, load."""
        facts = self.kind.save_briefly(self.make(), tmp_path / "kept")
        assert self.same(self.kind.load(tmp_path / "kept", facts), self.make())

    def test_facts_are_plain_json(self, tmp_path: Path) -> None:
        """They go into records, and come back from them."""
        facts = json.loads(json.dumps(self.kind.save(self.make(), tmp_path / "kept")))
        assert self.same(self.kind.load(tmp_path / "kept", facts), self.make())

    def test_its_files_may_be_moved(self, tmp_path: Path) -> None:
        """Nothing names the folder it was written to."""
        facts = self.kind.save(self.make(), tmp_path / "attempt")
        if (tmp_path / "attempt").exists():
            (tmp_path / "attempt").rename(tmp_path / "moved")
        assert self.same(self.kind.load(tmp_path / "moved", facts), self.make())

    def test_it_writes_into_its_folder_alone(self, tmp_path: Path) -> None:
        """Or nothing. Hidden files beside it, such as locks, are removed with the attempt."""
        self.kind.save(self.make(), tmp_path / "kept")
        assert {path.name for path in tmp_path.glob("[!.]*")} <= {"kept"}

    def test_a_command_is_given_a_path_that_exists(self, tmp_path: Path) -> None:
        """path, where there are files."""
        facts = self.kind.save(self.make(), tmp_path / "kept")
        if (tmp_path / "kept").exists():
            assert self.kind.path(tmp_path / "kept", facts).exists()

    def test_equal_values_have_equal_digests(self, tmp_path: Path) -> None:
        """Results are found again by them; and the kind is found by the value."""
        one, other = (store_value(self.make(), tmp_path / name / "output") for name in ("a", "b"))
        assert one.digest == other.digest
        assert self.same(one.load(), self.make())

    def test_nothing_is_unpickled(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is kept may come from elsewhere; a pickle could run anything."""
        facts = self.kind.save(self.make(), tmp_path / "kept")

        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise AssertionError("a pickle was loaded")

        for name in ("load", "loads", "Unpickler"):
            monkeypatch.setattr(pickle, name, refuse)
        self.kind.load(tmp_path / "kept", facts)
