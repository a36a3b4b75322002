"""Which parts of a batch a Trial's model takes, and that nothing else can change an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from trek.errors import InputError
from trek.serve.handlers.absent_input import AbsentTensor, AbsentValue, InputRead
from trek.serve.handlers.trial_handler import TrialHandler
from trek.train.checkpointing.batch_signature import values_of
from trek.train.checkpointing.loading import load_trial
from trek.train.fit import fit
from trek.train.length import batches
from trek.train.trial import Trial


class Net(nn.Module):
    """Of an age, only years above 18 count, and it may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.grown = nn.Linear(4, 2), nn.Linear(1, 2, bias=False)

    def forward(self, x: torch.Tensor, age: torch.Tensor | None = None) -> torch.Tensor:
        out: torch.Tensor = self.linear(x)
        return out if age is None else out + self.grown(F.relu(age - 18)[:, None])


class Patients(Trial):
    """Batches of every kind of part."""

    def build_model(self) -> nn.Module:
        return Net()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def build_training_data_loader(self) -> Any:
        drawn = torch.Generator().manual_seed(3)
        x, age = torch.randn(6, 4, generator=drawn), torch.tensor([1.0, 30, 60, 17, 18, 90])
        notes = {"note": ["a"] * 6, "site": 3, "nothing": None}
        return [{"x": x, "age": age, "label": torch.arange(6) % 2, **notes}]

    def build_validation_data_loader(self) -> Any:
        return self.build_training_data_loader()

    def answer(self, batch: Any, model: nn.Module) -> torch.Tensor:
        found: torch.Tensor = model(batch["x"], batch["age"])
        return found

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {"loss": F.cross_entropy(self.answer(batch, model), batch["label"])}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return self.train_batch(batch, model)


def _open(trial: type[Patients], folder: Path) -> TrialHandler:
    checkpoint = fit(trial, max_length=batches(2), checkpoint_dir=folder, show_progress=False).checkpoint
    assert checkpoint is not None
    return TrialHandler(load_trial(checkpoint, trial), checkpoint=checkpoint)


def _rows(handler: TrialHandler, **changes: Any) -> dict[str, np.ndarray]:
    """What is sent of the validation data."""
    batch = handler._trial.build_validation_data_loader()[0]
    found = {name: np.asarray(batch[name]) for name in handler.input_names}
    return found | changes


def test_an_input_that_matters_for_some_values_only_is_an_input(tmp_path: Path) -> None:
    handler = _open(Patients, tmp_path)
    assert [spec.name for spec in handler.inputs or ()] == ["x", "age"]
    [batch] = handler._trial.build_validation_data_loader()
    assert np.array_equal(handler.predict(_rows(handler))["output"], handler.answer_batch(batch)["output"])
    assert values_of(handler._signature, batch)["site"] == 3


def test_labels_that_are_only_moved_and_converted_are_no_input(tmp_path: Path) -> None:
    class Moving(Patients):
        def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
            moved = {key: one.to("cpu") if torch.is_tensor(one) else one for key, one in batch.items()}
            moved["label"] = moved["label"].long().view(-1)
            return self.train_batch(moved, model)

    assert _open(Moving, tmp_path).input_names == ["x", "age"]


def test_what_is_read_before_the_model_answers_is_an_input(tmp_path: Path) -> None:
    class Reading(Patients):
        def answer(self, batch: Any, model: nn.Module) -> torch.Tensor:
            try:
                scale = len(batch["note"][0]) + float(batch["label"].max())
            except Exception:
                scale = 0.0
            return super().answer(batch, model) * scale

    assert _open(Reading, tmp_path).input_names == ["x", "age", "label", "note"]


def test_what_is_read_for_other_values_is_an_error_and_no_other_answer(tmp_path: Path) -> None:
    class Deciding(Patients):
        def answer(self, batch: Any, model: nn.Module) -> torch.Tensor:
            is_far = bool((batch["x"] > 100).any())
            found: torch.Tensor = model(batch["x"], batch["age"] if is_far else None)
            return found

    handler = _open(Deciding, tmp_path)
    assert handler.input_names == ["x"]
    assert len(handler.predict(_rows(handler))["output"]) == 6
    with pytest.raises(InputError, match=r"read 'age' of a batch for these rows, .*: x\. Name all .* inputs = \("):
        handler.predict({"x": np.full((2, 4), 1000.0, "float32")})


def test_a_trial_says_what_its_inputs_are_and_the_rest_is_none(tmp_path: Path) -> None:
    class Declaring(Patients):
        inputs = ("x",)

    handler = _open(Declaring, tmp_path)
    assert handler.input_names == ["x"]
    expected = handler._call({"x": handler._trial.build_training_data_loader()[0]["x"], "age": None})
    assert np.array_equal(handler.predict(_rows(handler))["output"], expected.detach().numpy())


@pytest.mark.parametrize("declared", [("x", "agee"), "x", ()])
def test_inputs_that_no_batch_has_are_refused(tmp_path: Path, declared: Any) -> None:
    class Misspelt(Patients):
        inputs = declared

    with pytest.raises(InputError, match=r"inputs of Misspelt must be names .* has: x, age, label, note\."):
        _open(Misspelt, tmp_path)


def test_declared_inputs_that_do_not_suffice_are_refused(tmp_path: Path) -> None:
    class Lacking(Patients):
        inputs = ("age",)

    with pytest.raises(InputError, match=r"Lacking cannot answer a batch .* with age: TypeError"):
        _open(Lacking, tmp_path)


def test_a_part_that_no_request_can_hold_must_not_be_read(tmp_path: Path) -> None:
    class Sited(Patients):
        def answer(self, batch: Any, model: nn.Module) -> torch.Tensor:
            return super().answer({**batch, "x": batch["x"] * (batch.get("site") or 1)}, model)

    with pytest.raises(InputError, match="reads 'site' of a batch, which is int and no tensor"):
        _open(Sited, tmp_path)


def test_preprocess_gives_the_inputs(tmp_path: Path) -> None:
    class Prepared(Patients):
        def preprocess(self, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
            return {name.lower(): value for name, value in inputs.items()}

    handler = _open(Prepared, tmp_path)
    rows = _rows(handler)
    assert len(handler.predict({"X": rows["x"], "AGE": rows["age"]})["output"]) == 6
    for wrong in ({"X": rows["x"]}, {"X": rows["x"], "AGE": rows["age"], "label": rows["age"]}):
        with pytest.raises(InputError, match=r"preprocess of Prepared returned x.*the model takes x, age\."):
            handler.predict(wrong)


def _readings() -> Iterator[Any]:
    tensor = AbsentTensor.of("t")
    yield from (lambda: tensor + 1, lambda: 1 - tensor, lambda: torch.ones(2) * tensor, lambda: tensor.shape)
    yield from (lambda: torch.stack([torch.ones(2), tensor]), lambda: len(tensor), lambda: bool(tensor))
    yield from (lambda: tensor.tolist(), lambda: tensor.numpy(), lambda: tensor.item(), lambda: list(tensor))
    yield from (
        lambda: torch.zeros(2).copy_(tensor),
        lambda: np.asarray(tensor),
        lambda: tensor[0],
    )
    yield from (lambda: nn.Linear(2, 2)(tensor), lambda: repr(tensor), lambda: tensor.to(tensor), lambda: tensor == 1)
    text = AbsentValue("t", list)
    yield from (lambda: len(text), lambda: text[0], lambda: list(text), lambda: text * 2, lambda: text < [])
    yield from (lambda: bool(text), lambda: text == [], lambda: str(text), lambda: "a" in text, lambda: text.append(1))
    yield from (lambda: f"{text}", lambda: np.asarray(text), lambda: text.copy())


@pytest.mark.parametrize("read", list(_readings()))
def test_nothing_of_what_is_absent_can_be_read(read: Any) -> None:
    with pytest.raises(InputRead, match="t"):
        read()


def test_what_is_absent_looks_like_what_it_stands_for() -> None:
    tensor = AbsentTensor.of("t")
    assert torch.is_tensor(tensor)
    assert isinstance(tensor.to("cpu").long().detach().view(-1), AbsentTensor)
    assert isinstance(AbsentValue("t", list), list)
    assert tensor is not None
