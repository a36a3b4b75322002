"""A module of a model zoo: its functions, by their usual names or others, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import trek
from trek.compat.elasticdl import model_zoo
from trek.compat.elasticdl.constants import Mode
from trek.compat.elasticdl.model_zoo import ModelZoo, read_params
from trek.errors import EntrypointError, InputError

MODULE = """
import torch

def custom_model(units=1, name="plain"):
    model = torch.nn.Linear(1, units)
    model.label = name
    return model

def squared(labels, outputs):
    return ((labels - outputs) ** 2).mean()

def optimizer(lr=0.1):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr)

def dataset_fn(dataset, mode, metadata):
    x = dataset.to_torch()["x"].float().reshape(-1, 1)
    return x if mode == "prediction" else torch.utils.data.TensorDataset(x, 3 * x)

def eval_metrics_fn():
    return {"error": lambda labels, outputs: (labels - outputs).abs()}
"""
FUNCTIONS = {"loss": "squared"}


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    (tmp_path / "line").mkdir()
    (tmp_path / "line" / "model.py").write_text(MODULE)
    (tmp_path / "points.csv").write_text("x\n" + "\n".join(str(i / 8) for i in range(8)) + "\n")
    return tmp_path


def open_zoo(zoo: Path, **others: Any) -> ModelZoo:
    return ModelZoo(str(zoo), "line.model.custom_model", **{"functions": FUNCTIONS, **others})


def test_functions_with_other_names_and_arguments_of_the_model(zoo: Path) -> None:
    found = open_zoo(zoo, model_params="units=2; name=wide")
    model: Any = found.model()
    assert (model.out_features, model.label) == (2, "wide")
    assert found.optimizer(model).param_groups[0]["lr"] == 0.1
    assert found.loss(torch.ones(2), torch.zeros(2)) == 1.0
    assert found.metrics(torch.ones(2), torch.zeros(2)) == {"error": 1.0}
    assert found.callbacks() == {}
    samples = found.samples(str(zoo / "points.csv"), Mode.PREDICTION)
    assert samples.shape == (8, 1)


def test_training_begins_with_the_weights_of_a_checkpoint(zoo: Path) -> None:

    own: dict[str, Any] = {"model_zoo": str(zoo), "model_def": "line.model.custom_model", "functions": FUNCTIONS}
    data = str(zoo / "points.csv")
    settings: dict[str, Any] = {"max_length": trek.epochs(40), "show_progress": False, "minibatch_size": 8}
    first = model_zoo.train(**own, training_data=data, **settings)
    again = model_zoo.train(**own, training_data=data, checkpoint=first.checkpoint.path, **settings)
    assert again.checkpoint.metrics["error"] < 0.7 * first.checkpoint.metrics["error"]
    metrics = model_zoo.evaluate(**own, validation_data=data, checkpoint=again.checkpoint.path, minibatch_size=3)
    assert metrics["error"] == pytest.approx(again.checkpoint.metrics["error"], rel=1e-5)
    outputs = model_zoo.predict(**own, prediction_data=data, checkpoint=again.checkpoint.path, minibatch_size=3)
    assert outputs.shape == (8, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", {}), ("a=1; b = 2.5;", {"a": 1, "b": 2.5}), ("name=wide; t=(1, 2)", {"name": "wide", "t": (1, 2)})],
)
def test_arguments_are_read_from_text(text: str, expected: dict[str, Any]) -> None:
    assert read_params(text) == expected


def test_mistakes_are_named(zoo: Path) -> None:
    with pytest.raises(EntrypointError, match=r"has no loss\. See"):
        open_zoo(zoo, functions={})
    with pytest.raises(EntrypointError, match="has no cubed"):
        open_zoo(zoo, functions={"loss": "cubed"})
    with pytest.raises(InputError, match=r"must be 'name=value; name=value', got 'units'"):
        open_zoo(zoo, model_params="units")
    with pytest.raises(InputError, match=r"does not take its model_params \{'depth': 3\}"):
        open_zoo(zoo, model_params="depth=3").model()
    with pytest.raises(InputError, match="has no function 'other_model'"):
        ModelZoo(str(zoo), "line.model.other_model")


WIDE = """
import torch
from trek.compat.elasticdl.layers import Embedding

class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.user = Embedding(4, name="user", embeddings_initializer="normal")
        self.out = torch.nn.Linear(4, 1)

    def forward(self, ids):
        return self.out(self.user(ids)).squeeze(1)

custom_model = Wide

def loss(labels, outputs):
    return torch.nn.functional.mse_loss(outputs, labels)

def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.3)

def feed(dataset, mode, metadata):
    columns = dataset.to_torch()
    return torch.utils.data.TensorDataset(columns["id"].long(), columns["y"].float())

def eval_metrics_fn():
    return {"error": lambda labels, outputs: (labels - outputs).abs()}
"""


def test_rows_of_embeddings_are_evaluated_and_begun_with(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    (tmp_path / "wide.py").write_text(WIDE)
    data = tmp_path / "clicks.csv"
    data.write_text("id,y\n" + "\n".join(f"{i % 8 * 1_000_003},{i % 8 % 3}" for i in range(64)) + "\n")
    own: dict[str, Any] = {"model_zoo": str(tmp_path), "model_def": "wide.custom_model"}
    settings: dict[str, Any] = {"training_data": str(data), "show_progress": False, "minibatch_size": 16}
    first = model_zoo.train(**own, **settings, max_length=trek.epochs(60))
    assert first.checkpoint.metrics["error"] < 1e-3
    again = model_zoo.train(**own, **settings, max_length=trek.epochs(1), checkpoint=first.checkpoint.path)
    assert again.checkpoint.metrics["error"] < 1e-3
    found = model_zoo.evaluate(**own, validation_data=str(data), checkpoint=first.checkpoint.path)
    assert found["error"] == pytest.approx(first.checkpoint.metrics["error"], rel=1e-3, abs=1e-7)
