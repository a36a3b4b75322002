"""Values into files and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from trek.errors import InputError
from trek.flow.artefacts import Stored, store_value
from trek.flow.artefacts.plain import INLINE_BYTES


def _round_trip(value: Any, folder: Path) -> Any:
    stored = store_value(value, folder / "output_0")
    return Stored.from_json(stored.to_json()).load()


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2.5, "text", [1, [2]], (1, (2, "x")), {"a": (1,)}, {1: "one", (2, 3): None}, {"__tuple__": [1]}],
    ids=repr,
)
def test_plain_data_comes_back_as_it_was(value: Any, tmp_path: Path) -> None:
    back = _round_trip(value, tmp_path)
    assert back == value
    assert type(back) is type(value)
    assert not (tmp_path / "output_0").exists(), "small data needs no file"


def test_large_plain_data_is_a_file(tmp_path: Path) -> None:
    value = ["x" * INLINE_BYTES]
    stored = store_value(value, tmp_path / "output_0")
    assert stored.load() == value
    assert stored.path().is_file()


def test_arrays_are_mapped_and_read_only(tmp_path: Path) -> None:
    back = _round_trip(np.arange(6).reshape(2, 3), tmp_path)
    assert isinstance(back, np.memmap)
    assert back.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="read-only"):
        back[0, 0] = 9


def test_numpy_numbers_and_dicts_of_arrays_come_back(tmp_path: Path) -> None:
    assert _round_trip(np.float32(1.5), tmp_path) == 1.5
    back = _round_trip({"x": np.ones(2), "y": np.zeros(1)}, tmp_path / "more")
    assert {name: array.tolist() for name, array in back.items()} == {"x": [1, 1], "y": [0]}


def test_tensors_and_weights_come_back(tmp_path: Path) -> None:
    assert torch.equal(_round_trip(torch.arange(3), tmp_path), torch.arange(3))
    layer = torch.nn.Linear(2, 1)
    back = _round_trip(layer.state_dict(), tmp_path / "more")
    assert torch.equal(back["weight"], layer.weight)


def test_tensors_that_share_memory_come_back(tmp_path: Path) -> None:
    shared = torch.ones(4)
    back = _round_trip({"a": shared, "b": shared[:2]}, tmp_path)
    assert back["b"].tolist() == [1, 1]


def test_arrow_tables_come_back(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2, 3]})
    assert _round_trip(table, tmp_path).equals(table)


def test_treks_tables_come_back(tmp_path: Path) -> None:
    from trek.data import Table

    table = Table.of({"x": np.arange(4)})
    assert _round_trip(table, tmp_path).to_numpy()["x"].tolist() == [0, 1, 2, 3]


def test_a_file_in_the_attempt_is_taken_over(tmp_path: Path) -> None:
    made = tmp_path / "scratch" / "model.bin"
    made.parent.mkdir()
    made.write_text("weights")
    stored = store_value(made, tmp_path / "output_0")
    made.unlink()
    assert stored.load().read_text() == "weights"
    assert stored.load().name == "model.bin"


def test_a_folder_elsewhere_stays_and_is_watched(tmp_path: Path) -> None:
    own = tmp_path / "data"
    own.mkdir()
    (own / "a.txt").write_text("one")
    stored = store_value(own, tmp_path / "attempt" / "output_0")
    assert stored.load() == own
    assert stored.find_change() is None
    (own / "a.txt").write_text("two")
    os.utime(own / "a.txt", ns=(1, 1))
    assert "has changed" in (stored.find_change() or "")
    (own / "a.txt").write_text("longer")
    assert "bytes" in (stored.find_change() or "")
    (own / "a.txt").unlink()
    assert "no longer exists" in (stored.find_change() or "")


def test_a_new_time_alone_is_no_change(tmp_path: Path) -> None:
    own = tmp_path / "data.txt"
    own.write_text("one")
    stored = store_value(own, tmp_path / "attempt" / "output_0")
    os.utime(own, ns=(1, 1))
    assert stored.find_change() is None


def test_equal_contents_have_equal_digests(tmp_path: Path) -> None:
    first = store_value(np.ones(3), tmp_path / "a" / "output_0")
    second = store_value(np.ones(3), tmp_path / "b" / "output_0")
    other = store_value(np.zeros(3), tmp_path / "c" / "output_0")
    assert first.digest == second.digest != other.digest


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "the step returned a builtins.object"),
        (torch.nn.Linear(1, 1), "state_dict"),
        (np.array([object()]), "array of Python objects"),
        (Path("/no/such/file"), "which does not exist"),
    ],
    ids=["object", "module", "object array", "missing path"],
)
def test_what_cannot_be_stored_is_refused_with_a_remedy(value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        store_value(value, tmp_path / "output_0")
