"""Tensors of every type are saved and resumed to the bit, or refused when the model is added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trek
from trek.errors import InputError
from trek.train.checkpointing.tensor_files import load_tensors, save_tensors
from trek.wire.values import from_bytes, to_bytes

TYPES = sorted({one for one in vars(torch).values() if isinstance(one, torch.dtype)}, key=str)
REFUSED = {one for one in TYPES if str(one).startswith(("torch.bits", "torch.q", "torch.float4"))} | {
    one for one in TYPES if str(one).removeprefix("torch.").rstrip("1234567") in ("int", "uint") and one.itemsize == 1
} - {torch.int8, torch.uint8}
SAVED = [one for one in TYPES if one not in REFUSED]
TRAINED = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]


def random_bits(kind: torch.dtype, *shape: int) -> torch.Tensor:
    """Any bit pattern of the type but those that are no value of it."""
    if kind is torch.bool:
        return torch.rand(shape) > 0.5
    raw = torch.randint(0, 64, (*shape, kind.itemsize), dtype=torch.uint8)
    return raw.view(kind).reshape(shape)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
    )


class Typed(nn.Module):
    """A buffer and a frozen parameter of one type, and a trained parameter of another."""

    def __init__(self, kind: torch.dtype, trained: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.register_buffer("table", random_bits(kind, 3, 2))
        self.register_buffer("turned", random_bits(kind, 3, 2).T)
        self.register_buffer("number", random_bits(kind))
        self.register_buffer("nothing", random_bits(kind, 0))
        self.frozen = nn.Parameter(random_bits(kind, 2), requires_grad=False)
        self.weight = nn.Parameter(torch.ones(2, dtype=trained))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = self.weight * x
        return (torch.view_as_real(product) if product.is_complex() else product).square().mean().float()


class Remembering(torch.optim.SGD):
    """Keeps a tensor of one type for each parameter, whatever the type of the parameter is."""

    kind: torch.dtype

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter].setdefault("own", random_bits(self.kind, 2))


def train(tr: trek.Traveler, kind: torch.dtype, trained: torch.dtype, held: dict[str, torch.Tensor]) -> None:
    Remembering.kind = kind
    model = tr.add_model(Typed(kind, trained))
    optimizer = tr.add_optimizer(Remembering([model.weight], lr=0.1, momentum=0.9))
    for _ in tr.epochs(2):
        for x in tr.train([torch.ones(2)]):
            tr.backward(model(x))
            tr.step(optimizer)
    tr.save()
    held.update({name: value.clone() for name, value in model.state_dict().items()})
    held["own"], held["momentum"] = (optimizer.state[model.weight][key] for key in ("own", "momentum_buffer"))


@pytest.mark.filterwarnings("ignore:ComplexHalf support", "ignore:Casting complex values to real")
@pytest.mark.parametrize("kind", SAVED, ids=str)
def test_every_type_is_saved_and_resumed_to_the_bit(kind: torch.dtype, tmp_path: Path) -> None:
    saved: dict[str, torch.Tensor] = {}
    options: dict[str, Any] = {"workers": 1, "show_progress": False, "ema_decay": 0.5}
    trek.run(train, kind, torch.float32, saved, checkpoint_dir=tmp_path / "one", **options)
    (checkpoint,) = (tmp_path / "one").iterdir()
    stored = trek.Checkpoint(checkpoint).state_dict()
    assert all(same_bits(stored[name], saved[name]) for name in stored)
    resumed: dict[str, torch.Tensor] = {}
    trek.run(train, kind, torch.float32, resumed, checkpoint_dir=tmp_path / "two", resume=checkpoint, **options)
    assert all(same_bits(resumed[name], saved[name]) for name in saved)


@pytest.mark.parametrize("trained", TRAINED, ids=str)
def test_parameters_of_every_type_that_trains_are_resumed_to_the_bit(trained: torch.dtype, tmp_path: Path) -> None:
    """State of another type than its parameter, such as moments in float32 for bfloat16, used to be rounded."""
    saved: dict[str, torch.Tensor] = {}
    options: dict[str, Any] = {"workers": 1, "show_progress": False, "ema_decay": 0.5}
    trek.run(train, torch.float64, trained, saved, checkpoint_dir=tmp_path / "one", **options)
    (checkpoint,) = (tmp_path / "one").iterdir()
    resumed: dict[str, torch.Tensor] = {}
    trek.run(train, torch.float64, trained, resumed, checkpoint_dir=tmp_path / "two", resume=checkpoint, **options)
    assert all(same_bits(resumed[name], saved[name]) for name in saved)


@pytest.mark.filterwarnings("ignore:ComplexHalf support", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("kind", sorted(REFUSED, key=str), ids=str)
def test_a_type_that_cannot_be_saved_is_refused_when_the_model_is_added(kind: torch.dtype, tmp_path: Path) -> None:
    model = nn.Module()
    is_quantized = str(kind).startswith("torch.q")
    if is_quantized and kind not in (torch.qint8, torch.quint8, torch.qint32):
        pytest.skip("torch makes no tensor of this type from numbers")
    table = torch.quantize_per_tensor(torch.ones(2), 1.0, 0, kind) if is_quantized else torch.empty(2, dtype=kind)
    model.register_buffer("table", table)
    with trek.Traveler(checkpoint_dir=tmp_path, show_progress=False) as tr:
        name = str(kind).removeprefix("torch.")
        with pytest.raises(InputError, match=f"'table' of the model is a tensor of {name}, which cannot be saved"):
            tr.add_model(model)


def test_a_sparse_buffer_is_refused_unless_it_is_not_saved(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    with trek.Traveler(checkpoint_dir=tmp_path, show_progress=False) as tr:
        model.register_buffer("adjacency", torch.eye(2).to_sparse(), persistent=False)
        tr.add_model(model)
        model.register_buffer("adjacency", torch.eye(2).to_sparse())
        with pytest.raises(InputError, match=r"tensor of sparse_coo, .* persistent=False"):
            tr.add_model(model)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("kind", SAVED, ids=str)
def test_every_type_is_sent_between_ranks_and_written_to_files(kind: torch.dtype, tmp_path: Path) -> None:
    tensors = [random_bits(kind, 3, 2), random_bits(kind), random_bits(kind, 0), random_bits(kind, 3, 2).T]
    received = from_bytes(to_bytes(tensors))
    assert all(same_bits(one, other.contiguous()) for one, other in zip(received, tensors, strict=True))
    named = {str(number): tensor.contiguous() for number, tensor in enumerate(tensors)}
    save_tensors(named, tmp_path / "file")
    read = load_tensors(tmp_path / "file")
    assert all(same_bits(read[name], tensor) for name, tensor in named.items())


@pytest.mark.parametrize("kind", [torch.complex64, torch.complex128], ids=str)
def test_lazy_conjugates_are_saved_as_numbers(kind: torch.dtype, tmp_path: Path) -> None:
    model = nn.Module()
    model.register_buffer("turned", torch.tensor([1 + 2j], dtype=kind).conj())
    with trek.Traveler(checkpoint_dir=tmp_path, show_progress=False) as tr:
        tr.add_model(model)
        tr.save()
    (checkpoint,) = tmp_path.glob("batch-*")
    assert trek.Checkpoint(checkpoint).state_dict()["turned"].tolist() == [1 - 2j]
    assert from_bytes(to_bytes(model.turned)).tolist() == [1 - 2j]
