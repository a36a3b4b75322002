"""Inference over tables and streams: columns added, resumable, mistakes named."""

from __future__ import annotations

from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from trek.data import Table
from trek.data.execution import running_on
from trek.data.execution.threads import ThreadExecutor
from trek.errors import InputError, TrainingError


@pytest.fixture
def table() -> Table:
    rng = np.random.default_rng(0)
    return Table.of({"x": rng.random((100, 3), dtype=np.float32), "row": np.arange(100)}, num_partitions=3)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))


def test_a_models_outputs_become_a_column_behind_the_rows(table: Table) -> None:
    model = make_model()
    columns = table.predict(model, columns=["x"], output="logits", batch_size=7).to_torch()
    with torch.inference_mode():
        torch.testing.assert_close(columns["logits"], model.eval()(table.to_torch()["x"]))
    assert columns["row"].tolist() == list(range(100))


def test_a_dict_of_outputs_becomes_columns(table: Table) -> None:
    def model(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"total": x.sum(1), "best": x.argmax(1)}

    assert table.predict(model, columns=["x"]).columns == ["x", "row", "total", "best"]


@pytest.mark.parametrize("kind", ["factory", "checkpoint"])
def test_a_model_may_be_made_where_it_runs(kind: str, table: Table) -> None:
    class Saved:
        def load_model(self) -> nn.Module:
            return make_model()

    model = make_model if kind == "factory" else Saved()
    with running_on(ThreadExecutor(1)):  # make_model sets the seed of the whole process
        predicted = table.predict(model, columns=["x"]).to_torch()["prediction"]
    assert torch.equal(predicted, table.predict(make_model(), columns=["x"]).to_torch()["prediction"])


def test_a_model_counts_by_its_weights_and_not_by_an_attribute_called_path(table: Table, tmp_path: Path) -> None:
    """Predictions of other weights were served as fresh, since the attribute stood for the whole model."""

    class Scale(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor, self.path = nn.Parameter(torch.tensor(factor)), "weights.pt"

        def forward(self, row: torch.Tensor) -> torch.Tensor:
            return row * self.factor

    for factor in (2.0, 3.0):
        kept = table.predict(Scale(factor), columns=["row"]).persist(tmp_path / "kept")
        assert kept.to_numpy()["prediction"][1] == factor


def test_a_stream_is_predicted_as_it_comes() -> None:
    stream = Table.stream({"x": np.array([[float(n)]], np.float32)} for n in count())
    answers = [batch.column("prediction").to_pylist() for batch in islice(stream.predict(lambda x: x[:, 0] * 2), 3)]
    assert answers == [[0.0], [2.0], [4.0]]


def test_a_run_that_failed_goes_on_with_the_partitions_that_are_missing(table: Table, tmp_path: Path) -> None:
    log, broken = tmp_path / "log", tmp_path / "broken"
    broken.touch()

    def model(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        if int(row[0]) > 60 and broken.exists():
            raise RuntimeError("power cut")
        with log.open("a") as file:
            file.write(f"{int(row[0])} ")
        return row * 2

    with running_on(ThreadExecutor(1)):
        with pytest.raises(TrainingError, match="power cut"):
            table.predict(model).persist(tmp_path / "out", resume=True)
        assert not (tmp_path / "out").exists()
        broken.unlink()
        done = table.predict(model).persist(tmp_path / "out", resume=True)
    assert done.to_numpy()["prediction"].tolist() == list(range(0, 200, 2))
    assert log.read_text().split() == ["0", "33", "66"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        *[f"shard-0000{n}.parquet" for n in range(3)],
    ]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x, row: x[:2], "returned 2 values of 'prediction' for 33 rows"),
        (3, "needs a model, a function or a checkpoint, got int 3"),
    ],
)
def test_a_wrong_model_is_one_error(model: Any, message: str, table: Table) -> None:
    with pytest.raises(InputError, match=message), running_on(ThreadExecutor(1)):
        table.partition(1).partition(3).predict(model).to_arrow()


def test_a_text_column_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="'s' has type string"):
        Table.of({"s": ["a"]}).predict(lambda s: s).to_arrow()


def test_the_users_model_stays_in_training_and_is_the_same_to_persist(table: Table) -> None:
    model = make_model()
    predicted = table.predict(model, columns=["x"])
    before = predicted.fingerprint()
    predicted.to_torch()
    assert model.training
    assert all(module.training for module in model.modules())
    assert predicted.fingerprint() == before
