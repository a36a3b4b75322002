"""pytorch-quik's small functions, under its names."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn, optim

import trek.compat.pytorch_quik as pq
from trek.errors import InputError


@pytest.fixture
def args(tmp_path: Path) -> Namespace:
    made = pq.arg.default_args()
    pq.arg.update_args(made, {"base_dir": tmp_path, "data_date": "20210101"})
    return made


def test_arguments_come_from_defaults_scripts_and_command_lines() -> None:
    parser = pq.arg.add_learn_args(ArgumentParser(), {"learning_rate": 1.5e-6})
    for add in (pq.arg.add_ddp_args, pq.arg.add_mlflow_args, pq.arg.add_ray_tune_args):
        parser = add(parser)
    found = parser.parse_args(["--betas", "0.8,0.9", "--bs", "7", "--mixed_precision", "--use_mlflow"])
    assert (found.lr, found.betas, found.bs, found.mixed_precision) == (1.5e-6, (0.8, 0.9), 7, True)
    assert (found.use_mlflow, found.num_samples, found.nr, found.nodes) == (True, 20, 0, 1)
    assert not parser.parse_args(["--no-mixed_precision"]).mixed_precision


def test_unknown_defaults_and_betas_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="unknown argument learning_rat in kwargs"):
        pq.arg.add_learn_args(ArgumentParser(), {"learning_rat": 1.0})
    with pytest.raises(SystemExit):
        pq.arg.add_learn_args(ArgumentParser()).parse_args(["--betas", "0.9"])
    assert "betas must be two numbers" in capsys.readouterr().err


def test_files_are_named_for_what_they_hold(args: Namespace, tmp_path: Path) -> None:
    names = {
        ("train", None): "train_tensor_20210101.pt",
        ("model", None): "model_20210101.pt",
        ("state_dict", "orig"): "state_dict_eorig_20210101.pt",
        ("state_dict", 0): "state_dict_e0_20210101.pt",
        ("confusion", None): "confusion_20210101.png",
    }
    for (kind, epoch), name in names.items():
        assert pq.io.id_str(kind, args, epoch) == tmp_path / "data" / name
    args.bert_type = "roberta"
    assert pq.io.id_str("", args).parent == tmp_path / "data" / "roberta"


def test_weights_are_saved_without_the_names_of_wrappers(args: Namespace) -> None:
    model = nn.ModuleDict({"module": nn.Linear(2, 1)})
    path = pq.io.save_state_dict(model, args, 0)
    assert sorted(pq.io.load_torch_object("state_dict", args, 0)) == ["bias", "weight"]
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    with pytest.raises(InputError, match=r"state_dict_e1_20210101\.pt not found"):
        pq.io.load_torch_object("state_dict", args, 1)


def test_nothing_runs_when_a_file_is_loaded(args: Namespace) -> None:
    torch.save(print, pq.io.id_str("model", args))
    with pytest.raises(Exception, match="Weights only load failed"):
        pq.io.load_torch_object("model", args)


def test_tables_become_data_sets(args: Namespace) -> None:
    table = pd.DataFrame({"user": [1, 2], "item": [0.5, 1.5], "label": [0, 1]})
    made = pq.tensor.make_TensorDataset(table, "label", data_types={0: np.int32}, args=args)
    assert [one.tolist() for one in made.tensors] == [[1, 2], [0.5, 1.5], [0, 1]]
    assert made.tensors[0].dtype == torch.int32
    loaded = pq.io.load_torch_object("train", args)
    assert torch.equal(loaded.tensors[1], made.tensors[1])
    changed = pq.tensor.transform_TensorDataset(made, pop=1, torch_types={1: torch.float32})
    assert [one.dtype for one in changed.tensors] == [torch.int32, torch.float32]
    encoded = {"input_ids": torch.ones(2, 3), "attention_mask": torch.zeros(2, 3)}
    assert len(pq.tensor.make_TensorDataset(encoded, np.array([0, 1])).tensors) == 3


def test_categories_are_replaced_by_their_labels() -> None:
    index, label = pq.transform.create_dicts(np.array([1, 2, 3, 4, 5]), np.array([0, 0, 1, 2, 2]))
    assert index == {1: 0, 2: 1, 3: 2, 4: 3, 5: 4}
    assert pd.Series([5, 3, 1]).replace(label).tolist() == [2, 1, 0]
    table = pd.DataFrame({"stars": [30, 10, 20]})
    assert pq.transform.create_labels(table, labels=[7, 8, 9], category="stars") is table
    assert table[["cat_index", "label"]].to_numpy().tolist() == [[2, 9], [0, 7], [1, 8]]
    with pytest.raises(InputError, match="3 categories, and there are 2 labels"):
        pq.transform.create_labels(table, labels=[0, 1], category="stars")


def test_splits_have_no_common_row_and_the_training_part_is_balanced() -> None:
    rows = pd.DataFrame({"row": range(500), "label": [0] * 300 + [1] * 150 + [2] * 50})
    table = rows.set_index(rows.index % 7)  # an index that names several rows each
    parts = pq.transform.imbalanced_split(table, test_size=0.1, valid_size=0.2)
    assert {name: np.bincount(part.y).tolist() for name, part in parts.items()} == {
        "train": [216, 216, 216],
        "valid": [54, 27, 9],
        "test": [30, 15, 5],
    }
    assert list(parts) == ["train", "valid", "test"]
    seen = [set(part.X[:, 0]) for part in parts.values()]
    assert sum(map(len, seen)) == len(set.union(*seen)) == 500
    assert all(rows["label"][part.X[:, 0]].tolist() == part.y.tolist() for part in parts.values())
    again = pq.transform.imbalanced_split(table, test_size=0.1, valid_size=0.2)
    assert all(np.array_equal(again[name].X, part.X) for name, part in parts.items())


def test_splits_that_leave_nothing_are_refused() -> None:
    table = pd.DataFrame({"row": range(5), "label": [0, 0, 0, 0, 1]})
    with pytest.raises(InputError, match=r"test_size must be a share of the rows between 0 and 1, got 1\.0"):
        pq.transform.imbalanced_split(table, test_size=1.0)
    with pytest.raises(InputError, match=r"label 1 has 1 rows, too few for test_size 0\.2"):
        pq.transform.imbalanced_split(table, test_size=0.2)
    with pytest.raises(InputError, match="column 'label' has rows without a label"):
        pq.transform.imbalanced_split(table.assign(label=[0, 1, None, 1, 0]))


def test_losses_are_smoothed_and_every_table_is_its_own() -> None:
    metrics, other = pq.metrics.LossMetrics(0.9), pq.metrics.LossMetrics()
    for value in (2.0, 2.0, 2.0):
        metrics.add_loss(torch.tensor(value))
    metrics.add_vloss([torch.tensor(1.0), torch.tensor(4.0)], [30, 10])
    metrics.write()
    row = metrics.results.iloc[0]
    assert (row["epoch"], round(row["train_loss"], 6), row["valid_loss"], row["time"]) == (0, 2.0, 1.75, "00:00")
    assert other.results.empty


def test_any_optimizer_and_scheduler_gets_what_it_takes(args: Namespace) -> None:
    pq.arg.update_args(args, {"lr": 0.5, "bs": 4, "epochs": 2})
    tr = pq.travel.QuikTraveler(pq.travel.QuikTrek(args, None))
    tr.add_data(torch.utils.data.TensorDataset(torch.randn(10, 3), torch.randn(10)))
    tr.add_model(nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1)))
    tr.set_optimizer(optim.SGD, momentum=0.9)
    assert (tr.optimizer.param_groups[0]["lr"], tr.optimizer.param_groups[0]["momentum"]) == (0.5, 0.9)
    tr.set_scheduler(optim.lr_scheduler.OneCycleLR, {"pct_start": 0.5})
    assert (tr.scheduler.total_steps, tr.data.steps, tr.data.total_steps) == (6, 3, 6)
    assert (tr.world.rank_id, tr.world.world_size, tr.world.is_ddp, tr.world.is_logger) == (0, 1, False, True)
    tr.trek.traveler.close()


def test_a_sampler_chooses_the_samples(args: Namespace) -> None:
    pq.arg.update_args(args, {"bs": 4})
    tr = pq.travel.QuikTraveler(pq.travel.QuikTrek(args))
    tr.add_data(torch.utils.data.TensorDataset(torch.arange(10.0), torch.arange(10)))
    tr.add_model(nn.Linear(1, 1))
    tr.set_optimizer(optim.SGD)
    tr.data.add_sampler(tr.world, torch.utils.data.RandomSampler, {"num_samples": 6})
    tr.data.add_data_loader(tr.world)
    assert tr.data.steps == 2
    seen = [row for _, labels in tr.data.data_loader for row in labels.tolist()]
    assert len(set(seen)) == 6
    tr.trek.traveler.close()


def test_small_things() -> None:
    labels = pq.utils.indexed_dict(("good", "bad"))
    assert labels == {0: "good", 1: "bad"}
    assert pq.utils.inverse_dict(labels) == {"good": 0, "bad": 1}
    assert pq.utils.txt_format(["a"]) == '{"instances": [{"data": "a"}]}'
    assert pq.utils.row_str(1_500_000) == "1.5M rows"
    assert pq.ddp.find_free_port() > 0
