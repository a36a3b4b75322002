"""pytorch-quik's search with Ray Tune, on a real Ray: two trials of its own loop."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray.tune", reason="Ray Tune is not installed", exc_type=ImportError)

import trek.compat.pytorch_quik as pq
from trek.errors import ConfigError, InputError

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]
SPACE = """
bs:
    choice:
        categories: [8]
lr: {grid_search: [0.1, 1.0e-9]}
weight_decay:
    uniform: {lower: 0, upper: 1e-6}
"""


def make_train() -> Any:
    """A function of its own, which Ray sends by value: the workers cannot import this file."""

    def train(config: dict[str, Any], args: Namespace, gpu: int | None) -> None:
        import torch

        import trek.compat.pytorch_quik as pq

        assert (args.bs, args.lr) == (8, config["lr"])
        trek = pq.travel.QuikTrek(args, gpu)
        tr, vl = pq.travel.QuikTraveler(trek), pq.travel.QuikTraveler(trek, type="valid")
        x = torch.linspace(-1, 1, 64).reshape(64, 1)
        for traveler in (tr, vl):
            traveler.add_data(torch.utils.data.TensorDataset(x, 3 * x[:, 0]))
        tr.add_model(torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Flatten(0, 1)))
        tr.set_criterion(torch.nn.MSELoss)
        tr.set_optimizer(torch.optim.Adam)
        for epoch in range(tr.epochs):
            for inputs, labels in tr.data.data_loader:
                loss = tr.criterion(tr.model(inputs), labels)
                tr.backward(loss)
                tr.add_loss(loss)
            pairs = [(tr.criterion(tr.model(inputs), labels), len(labels)) for inputs, labels in vl.data.data_loader]
            tr.add_vloss([loss for loss, _ in pairs], [num for _, num in pairs], epoch)

    return train


@pytest.mark.usefixtures("cluster")
def test_two_trials_are_searched_by_tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.tune.schedulers import ASHAScheduler

    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    (tmp_path / "space.yaml").write_text(SPACE)
    args = pq.arg.default_args()
    pq.arg.update_args(args, {"epochs": 3, "num_samples": 1})
    space = pq.tune.get_tune_config(tmp_path / "space.yaml")
    found = pq.tune.run_ddp_tune(make_train(), args, space, ASHAScheduler(metric="valid_loss", mode="min"))
    assert found.best_config["lr"] == 0.1
    assert len(found.trials) == 2
    assert {trial.status for trial in found.trials} == {"TERMINATED"}
    assert found.best_result["valid_loss"] < 1.0
    assert (args.use_ray_tune, args.bs) == (False, 50_000), "the arguments of the script are as they were"


def test_a_wrong_space_or_number_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config 'none\.yaml' not found"):
        pq.tune.get_tune_config("none.yaml")
    (tmp_path / "space.yaml").write_text("- bs")
    with pytest.raises(ConfigError, match="must be a mapping of arguments to what they may be, got list"):
        pq.tune.get_tune_config(tmp_path / "space.yaml")
    with pytest.raises(InputError, match=r"args\.num_samples must be at least 1, got 0"):
        pq.tune.run_ddp_tune(make_train(), Namespace(num_samples=0), {})
