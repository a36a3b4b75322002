"""A checkpoint that MLflow opens as a model answers what a server of the same checkpoint does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

pytest.importorskip("mlflow", reason="MLflow is not installed")

import trek
from trek.errors import InputError
from trek.integrations.mlflow_model import CheckpointModel
from trek.serve.handlers.base import Arrays, Handler
from trek.serve.handlers.trial_handler import TrialHandler
from trek.serve.model_source import ModelSource
from trek.serve.tensor_spec import TensorSpec
from trek.testing.serving import ScoringTrial, source_of, train_points

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own


class Bytes(trek.Trial):
    """Divides in `evaluate_batch`, as the model's data are bytes."""

    def build_model(self) -> nn.Module:
        return nn.Linear(4, 2)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def build_training_data_loader(self) -> Any:
        rows = {"image": np.arange(32, dtype=np.uint8).reshape(8, 4), "label": np.arange(8) % 2}
        return trek.DataLoader(trek.data.Table.of(rows), 4)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {"loss": nn.functional.cross_entropy(model(batch[0] / 16), batch[1])}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {"validation_loss": nn.functional.cross_entropy(model(batch[0] / 16), batch[1])}


def opened(checkpoint: Path, folder: Path) -> Any:
    import mlflow.pyfunc  # not before warnings are ignored

    mlflow.pyfunc.save_model(
        str(folder), loader_module="trek.integrations.mlflow_model", data_path=str(checkpoint), pip_requirements=[]
    )
    return mlflow.pyfunc.load_model(str(folder))


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("_MLFLOW_TELEMETRY_SESSION_ID", "tests")


def test_what_the_trial_does_to_a_batch_is_done_to_rows(tmp_path: Path) -> None:
    result = trek.fit(
        Bytes, hparams={"global_batch_size": 4}, max_length=trek.batches(2), show_progress=False, name="bytes"
    )
    assert result.checkpoint is not None
    model = opened(result.checkpoint.path, tmp_path / "model")
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    with torch.no_grad():
        expected = result.checkpoint.load_model(Bytes)(torch.from_numpy(rows) / 16).numpy()
    by_name = pd.DataFrame({"image": list(rows), "other": range(3)})
    for given in (rows, rows.astype("float32"), rows.tolist(), pd.DataFrame(rows), {"image": rows}, by_name):
        assert model.predict(given) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(InputError, match=r"input 'image' must have the shape \[any, 4\], got \[3, 3\]"):
        model.predict(rows[:, :3])


def test_hooks_of_the_trial_are_used(tmp_path: Path) -> None:
    checkpoint = train_points(tmp_path / "checkpoints", trial=ScoringTrial)
    model = opened(checkpoint, tmp_path / "model")
    texts = ["1 1 1 1 1 1", "-1 -1 -1 -1 -1 -1"]
    expected = TrialHandler.open(source_of(checkpoint), device="cpu").predict({"text": np.array(texts, dtype=object)})
    for given in ({"text": texts}, pd.DataFrame({"text": texts})):
        assert model.predict(given).tolist() == expected["name"].tolist()
    with pytest.raises(InputError, match=r"expected rows by the names of the inputs \(any\), got list"):
        model.predict(texts)


class Sums(Handler):
    """Takes two inputs, returns two outputs."""

    inputs = (TensorSpec("a", "float32", ()), TensorSpec("b", "float32", ()))

    @classmethod
    def open(cls, source: ModelSource, *, device: str, number: int = 0) -> Handler:
        return cls()

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        return {"sum": inputs["a"] + inputs["b"], "difference": inputs["a"] - inputs["b"]}


def test_several_inputs_and_outputs_go_by_their_names() -> None:
    model = CheckpointModel(Sums())
    found = model.predict(pd.DataFrame({"b": [1.0], "a": [3.0]}))
    assert {name: values.tolist() for name, values in dict(found).items()} == {"sum": [4.0], "difference": [2.0]}
    with pytest.raises(InputError, match=r"by the names of the inputs \(a, b\), got DataFrame"):
        model.predict(pd.DataFrame({"a": [1.0]}))
