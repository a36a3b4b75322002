"""Runs that pytorch-quik's scripts record, in a real store of MLflow."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn, optim
from torch.utils.data import TensorDataset

pytest.importorskip("mlflow", reason="MLflow is not installed")

from mlflow import MlflowClient
from mlflow.entities import Run

import trek.compat.pytorch_quik as pq
from trek.errors import InputError, NotFound, OutsideError

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, and those of what it imports
WEIGHTS = torch.tensor([1.0, -2.0, 0.5])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A database, and the folder for artifacts."""
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("_MLFLOW_TELEMETRY_SESSION_ID", "tests")  # MLflow sets it for good where it is not set
        yield f"sqlite:///{folder}/mlflow.db", folder / "artifacts"


@pytest.fixture
def args(store: tuple[str, Path], tmp_path: Path, request: pytest.FixtureRequest) -> Namespace:
    """An experiment of MLflow for each test."""
    made = pq.arg.default_args()
    own = {"base_dir": tmp_path, "data_date": "20210101", "tracking_uri": store[0], "user": "ada"}
    pq.arg.update_args(made, {**own, "experiment": request.node.name, "bs": 16, "lr": 0.1, "epochs": 2})
    MlflowClient(store[0]).create_experiment(made.experiment, artifact_location=(store[1] / made.experiment).as_uri())
    return made


def runs(args: Namespace) -> list[Run]:
    client = MlflowClient(args.tracking_uri)
    found = client.get_experiment_by_name(args.experiment)
    return list(client.search_runs([found.experiment_id], order_by=["attributes.start_time ASC"]))


def train(args: Namespace, gpu: int | None) -> None:
    """pytorch-quik's loop, with a validation and a test."""
    trek = pq.travel.QuikTrek(args, gpu)
    tr, vl = pq.travel.QuikTraveler(trek), pq.travel.QuikTraveler(trek, type="valid")
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    tr.add_data(TensorDataset(x, (x @ WEIGHTS > 0).long()))
    vl.add_data(TensorDataset(x, (x @ WEIGHTS > 0).long()))
    tr.add_model(nn.Linear(3, 2))
    tr.set_criterion(nn.CrossEntropyLoss)
    tr.set_optimizer(optim.Adam)
    for epoch in range(tr.epochs):
        for inputs, labels in tr.data.data_loader:
            loss = tr.criterion(tr.model(inputs), labels)
            tr.backward(loss)
            tr.add_loss(loss, None, epoch)
        losses, sizes, scores = [], [], []
        for inputs, labels in vl.data.data_loader:
            scores.append(tr.model(inputs))
            losses.append(tr.criterion(scores[-1], labels))
            sizes.append(len(labels))
        tr.add_vloss(losses, sizes, epoch)
        tr.save_state_dict(epoch)
    vl.data.add_results(torch.cat(scores), (x @ WEIGHTS > 0).long())
    vl.record_results(pq.utils.indexed_dict(("below", "above")))


def test_a_training_is_one_run_from_which_its_weights_come_back(args: Namespace, tmp_path: Path) -> None:
    pq.arg.update_args(args, {"use_mlflow": True})
    pq.ddp.traverse(train, args)
    (run,) = runs(args)
    _check_recorded(run, MlflowClient(args.tracking_uri))
    trained = pq.io.load_torch_object("state_dict", args, 1)
    shutil.rmtree(tmp_path / "data")
    mlf = pq.mlflow.QuikMlflow(args)
    date = mlf.get_state_dict(1, filter_string="params.lr = '0.1'", serve_path=tmp_path / "serve")
    assert date == "20210101"
    loaded = torch.load(tmp_path / "serve" / "state_dict_e1_20210101.pt", weights_only=True)
    assert all(torch.equal(loaded[name], trained[name]) for name in trained)
    assert mlf.get_state_dict(0, run_id=run.info.run_id, ioargs=args) == "20210101"
    assert sorted(pq.io.load_torch_object("state_dict", args, 0)) == ["bias", "weight"]
    found = mlf.search_runs(order_by="metrics.train_loss ASC")
    assert [one["data"]["params"]["lr"] for one in found.values()] == ["0.1"]
    with pytest.raises(NotFound, match="has no weights of epoch 7, but"):
        mlf.get_state_dict(7)
    with pytest.raises(NotFound, match=r"fits \"params.lr = '3'\""):
        mlf.get_state_dict(1, filter_string="params.lr = '3'")


def _check_recorded(run: Run, client: MlflowClient) -> None:
    assert (run.info.status, run.data.tags["mlflow.user"]) == ("FINISHED", "ada")
    expected = {"lr": "0.1", "batch_size": "16", "world_size": "1", "epochs": "2"}
    assert {name: run.data.params[name] for name in expected} == expected
    losses = {name: client.get_metric_history(run.info.run_id, name) for name in ("train_loss", "valid_loss")}
    assert [one.step for one in losses["train_loss"]] == list(range(1, 9))
    assert [one.step for one in losses["valid_loss"]] == [4, 8]
    assert losses["valid_loss"][1].value < losses["valid_loss"][0].value
    assert run.data.metrics["accuracy"] > 0.8
    files = sorted(one.path for one in client.list_artifacts(run.info.run_id))
    assert files == ["confusion_20210101.png", "state_dict_e0_20210101.pt", "state_dict_e1_20210101.pt"]


def test_a_script_records_by_itself_and_nests_its_runs(args: Namespace, tmp_path: Path) -> None:
    pq.arg.update_args(args, {"is_parent": True})
    parent = pq.mlflow.QuikMlflow(args)
    parent.create_run([])
    pq.arg.update_args(args, {"is_parent": False, "parent_run": parent.mlfkwargs.parent_run})
    (tmp_path / "notes.txt").write_text("notes")
    mlf = pq.mlflow.QuikMlflow(args)
    with pytest.raises(InputError, match="Call create_run first"):
        mlf.log_metric("score", 1.0)
    mlf.create_run([{"depth": 3}, mlf.mlfkwargs])
    assert mlf.add_tags({"team": "a"}) == {"mlflow.user": "ada", "team": "a"}
    for score in (0.5, 0.75):
        mlf.log_metric("score", score)
    mlf.log_artifact(tmp_path / "notes.txt")
    with pytest.raises(InputError, match="the run has started"):
        mlf.log_parameters([{"late": 1}])
    mlf.update_run_status("FAILED")
    mlf.end_run()
    above, run = runs(args)
    assert [one.info.status for one in (above, run)] == ["FINISHED", "FAILED"]
    assert run.data.tags["mlflow.parentRunId"] == above.info.run_id
    assert (run.data.params["depth"], run.data.params["user"], run.data.tags["team"]) == ("3", "ada", "a")
    client = MlflowClient(args.tracking_uri)
    history = client.get_metric_history(run.info.run_id, "score")
    assert [(one.step, one.value) for one in history] == [(0, 0.5), (1, 0.75)]
    assert [one.path for one in client.list_artifacts(run.info.run_id)] == ["notes.txt"]


def test_bad_use_is_told(args: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    mlf = pq.mlflow.QuikMlflow(args)
    with pytest.raises(OutsideError, match="did not answer: Invalid clause"):
        mlf.search_runs("nonsense")
    with pytest.raises(NotFound, match="experiment 'nowhere' not found"):
        pq.mlflow.QuikMlflow(Namespace(experiment="nowhere", tracking_uri=args.tracking_uri)).search_runs()
    mlf.create_run([])
    with pytest.raises(InputError, match="status must be one of FINISHED"):
        mlf.update_run_status("DONE")
    monkeypatch.setenv("TREK_RANK", "1")
