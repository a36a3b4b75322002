"""Values into files and back."""

from __future__ import annotations

import os
from collections import OrderedDict, defaultdict
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


def test_arrays_are_mapped_and_a_change_stays_with_who_made_it(tmp_path: Path) -> None:
    stored = store_value(np.arange(6).reshape(2, 3), tmp_path / "output_0")
    back, other = stored.load(), stored.load()
    assert isinstance(back, np.memmap)
    back += 1
    np.random.default_rng(0).shuffle(back)
    assert sorted(back.reshape(-1).tolist()) == [1, 2, 3, 4, 5, 6]
    assert other.tolist() == stored.load().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert stored.find_change() is None


CONJUGATE = torch.tensor([1 + 2j], dtype=torch.complex64).conj()
SAME = [
    np.array(4), np.float32(1.5), np.str_("a"), np.asfortranarray(np.ones((2, 3))), np.zeros((0, 3)),
    np.array(["2020-01-01"], dtype="datetime64[D]"), np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", ">f8")]),
    {"n": np.float32(1), "z": np.array(1), "a": np.ones(2)}, OrderedDict(b=np.ones(1), a=np.zeros(1)),
    torch.tensor(3), torch.zeros(0, 2), torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2)),
    torch.nn.Parameter(torch.ones(2), requires_grad=False),
    torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last),
    dict(torch.nn.Linear(2, 1).named_parameters()), torch.nn.Linear(2, 1).state_dict(), CONJUGATE, CONJUGATE.imag,
    torch.arange(6).reshape(2, 3).T, torch.ones(2, dtype=torch.bfloat16), torch.ones(2).expand(3, 2),
]  # fmt: skip


def spelt(value: Any) -> Any:
    """Everything about a value that a later step can see."""
    if isinstance(value, dict):
        return type(value), [(key, spelt(item)) for key, item in value.items()]
    grad = value.requires_grad if isinstance(value, torch.Tensor) else value.flags.writeable
    kind = np.ndarray if isinstance(value, np.memmap) else type(value)
    return kind, value.dtype, tuple(value.shape), grad, value.tolist()


@pytest.mark.parametrize("value", SAME, ids=[f"{index}-{type(value).__name__}" for index, value in enumerate(SAME)])
@pytest.mark.parametrize("nest", [lambda value: value, lambda value: [value, b"composite"]], ids=["alone", "nested"])
def test_numbers_come_back_as_what_they_were(value: Any, nest: Any, tmp_path: Path) -> None:
    back = _round_trip(nest(value), tmp_path)
    assert spelt(back[0] if isinstance(back, list) else back) == spelt(value)


def test_a_result_comes_back_without_its_graph(tmp_path: Path) -> None:
    loss = (torch.ones(2, requires_grad=True) * 2).sum()
    back = _round_trip(loss, tmp_path)
    assert (back.item(), back.requires_grad) == (4, False)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantized_tensor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a quantized tensor \(torch\.qint8\) cannot be stored"):
        store_value(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), tmp_path / "output_0")


class Tagged(torch.Tensor):
    """A subclass, such as those of images."""


def _own_list() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


def _deep_list() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.eye(2).to_sparse(), "a sparse or nested tensor cannot be stored"),
        (torch.ones(2, device="meta"), "has no values"),
        (torch.ones(2, dtype=torch.complex128), r"a tensor of torch\.complex128 cannot be stored"),
        (torch.ones(2).as_subclass(Tagged), "a Tagged cannot be stored as such"),
        (np.ones(2).view(np.recarray), "a recarray cannot be stored as such"),
        (np.ma.masked_array([1], mask=[True]), "a masked array"),
        (defaultdict(list, a=np.ones(1)), r"a collections\.defaultdict, which cannot be stored"),
        (_own_list(), "a list that holds itself"),
        ({"a": np.ones(1), "b": _own_list()}, "a dict that holds itself"),
        (_deep_list(), "nested too deeply"),
    ],
    ids=[
        "sparse",
        "meta",
        "complex128",
        "subclass",
        "recarray",
        "masked",
        "defaultdict",
        "own",
        "own inside",
        "deep",
    ],
)
def test_what_would_come_back_as_something_else_is_refused(value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        store_value(value, tmp_path / "output_0")


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
