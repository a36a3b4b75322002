"""Trials: several models driven by hand, the many ways to declare one, and mistakes named with their remedy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.errors import ConfigError, EntrypointError, InputError
from trek.testing.trials import PointsTrial, make_points
from trek.train.callbacks.callback import Callback
from trek.train.result import Result
from trek.train.trial import reset_parameters

HPARAMS = {"global_batch_size": 8, "rows": 45}


def fit(trial: Any, **settings: Any) -> Result:
    hparams = {**HPARAMS, **settings.pop("hparams", {})}
    options: dict[str, Any] = {"max_length": trek.epochs(2), "name": "run", "show_progress": False, **settings}
    return trek.fit(trial, hparams=hparams, **options)


# -- a GAN


class Adversaries(trek.Trial):
    """A generator and a judge with an optimizer and a scheduler each; the generator steps every second batch."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.generator = context.wrap_model(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6)))
        self.judge = context.wrap_model(nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 1)))
        self.makes = context.wrap_optimizer(torch.optim.Adam(self.generator.parameters(), lr=0.01))
        self.judges = context.wrap_optimizer(torch.optim.SGD(self.judge.parameters(), lr=0.1, momentum=0.5))
        context.wrap_lr_scheduler(torch.optim.lr_scheduler.ExponentialLR(self.makes, 0.9), "step")
        context.wrap_lr_scheduler(torch.optim.lr_scheduler.ExponentialLR(self.judges, 0.5), "epoch")

    def build_training_data_loader(self) -> Any:
        return trek.DataLoader(make_points(45)[:1], self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return trek.DataLoader(make_points(20)[:1], 8)

    def train_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if batch_idx + 1 == self.context.get_hparams().get("stop_at"):
            self.context.traveler.stop.request("preempted")
        (real,) = batch
        made = self.generator(torch.randn(len(real), 3))
        judged = F.softplus(self.judge(made.detach())).mean() + F.softplus(-self.judge(real)).mean()
        self.context.backward(judged)
        self.context.step_optimizer(self.judges, clip_norm=1.0)
        if batch_idx % 2:
            return {"judge": judged}
        fooled = F.softplus(-self.judge(made)).mean()
        self.context.backward(fooled)
        self.context.step_optimizer(self.makes)
        self.judges.zero_grad()  # what the generator's loss left in the judge
        return {"judge": judged, "generator": fooled}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        assert not self.judge.training
        return {"validation_loss": F.softplus(-self.judge(batch[0])).mean()}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_two_models_and_optimizers_resume_to_the_bit(precision: str) -> None:
    whole = fit(Adversaries, precision=precision, report_period=1)
    for stop_at in (3, 6, 8):
        fit(Adversaries, precision=precision, hparams={"stop_at": stop_at}, name=f"at-{stop_at}", report_period=1)
        again = fit(Adversaries, precision=precision, name=f"at-{stop_at}", resume="latest", report_period=1)
        assert again.checkpoint is not None
        assert whole.checkpoint is not None
        for model in (0, 1):
            for name, weights in whole.checkpoint.state_dict(model).items():
                assert torch.equal(weights, again.checkpoint.state_dict(model)[name])
        assert [row for row in again.metrics if row["group"] != "system"] == [
            row for row in whole.metrics if row["group"] != "system"
        ]


def test_each_scheduler_follows_its_own_optimizer() -> None:
    result = fit(Adversaries)
    assert result.checkpoint is not None
    makes, judges = result.checkpoint.read().shared["optimization"]["optimizers"]
    assert makes["param_groups"][0]["lr"] == pytest.approx(0.01 * 0.9**6)  # six of twelve batches
    assert judges["param_groups"][0]["lr"] == pytest.approx(0.1 * 0.5**2)


# -- ways to declare


class Keywords(PointsTrial):
    """Takes what it likes, in its own order or by keyword."""

    seen: tuple[Any, ...] = ()

    def train_batch(self, batch_idx: int, batch: Any, model: nn.Module, epoch_idx: int) -> torch.Tensor:  # type: ignore[override]
        type(self).seen = (batch_idx, epoch_idx)
        return F.cross_entropy(model(batch[0]), batch[1])

    def evaluate_batch(self, **given: Any) -> dict[str, Any]:  # type: ignore[override]
        assert set(given) == {"batch", "model", "batch_idx"}
        return {"loss": 0.0}


class Nicknames(PointsTrial):
    """Names its parameters as it likes."""

    def train_batch(self, b: Any, m: nn.Module, e: int, i: int) -> torch.Tensor:  # type: ignore[override]
        Keywords.seen = (i, e)
        return F.cross_entropy(m(b[0]), b[1])


@pytest.mark.parametrize("trial", [Keywords, Nicknames])
def test_methods_take_what_they_name_and_a_bare_loss_is_enough(trial: Any) -> None:
    result = fit(trial)
    assert Keywords.seen == (11, 1)
    assert "loss" in result.metrics[0]


def test_a_context_knows_its_place_and_its_settings() -> None:
    told: dict[str, Any] = {}

    class Asking(PointsTrial):
        def build_callbacks(self) -> dict[str, Callback]:
            context = self.context
            told.update(
                seed=context.get_trial_seed(),
                data=context.get_data_config(),
                place=(context.distributed.get_rank(), context.distributed.get_size()),
                local=(context.distributed.get_local_rank(), context.distributed.get_num_agents()),
                nested=context.get_hparam("optimizer.lr"),
                sizes=(context.get_global_batch_size(), context.get_per_slot_batch_size()),
                ids=(context.get_experiment_id(), context.get_trial_id()),
                config=context.get_experiment_config(),
                stop=context.get_stop_requested(),
            )
            return {}

    fit(Asking, hparams={"optimizer": {"lr": 3}}, data={"url": "x"}, seed=5)
    assert told == {
        "seed": 5, "data": {"url": "x"}, "place": (0, 1), "local": (0, 1), "nested": 3, "sizes": (8, 8),
        "ids": (0, 0), "config": {}, "stop": False,
    }  # fmt: skip


def test_a_batch_that_cannot_be_shared_evenly_is_shared_whole() -> None:
    rows = torch.arange(64 * 2)
    shares = []
    for rank in range(3):
        world = trek.World(rank=rank, size=3, local_rank=rank, local_size=3)
        context = trek.TrialContext(SimpleNamespace(world=world), hparams={"global_batch_size": 64})  # type: ignore[arg-type]
        assert context.get_per_slot_batch_size() == 21
        loader = trek.DataLoader((rows,), context.get_per_slot_batch_size()).bind(world, seed=0)
        assert loader.batch_records == 64
        shares.append([batch.data[0].tolist() for batch in loader.batches(0)])
    assert [[len(share) for share in rank] for rank in shares] == [[22, 22], [21, 21], [21, 21]]
    assert sorted(row for rank in shares for share in rank for row in share) == rows.tolist()


def test_parameters_are_reset_wherever_a_module_can() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    nn.init.zeros_(model[0].weight)
    reset_parameters(model)
    assert model[0].weight.abs().sum() > 0


def test_validation_and_length_by_records_and_epochs_of_a_given_size() -> None:
    result = fit(PointsTrial, max_length=trek.records(60), validation_period=trek.records(24))
    assert [row["batches"] for row in result.metrics if row["group"] == "validation"] == [3, 6, 8]
    result = fit(PointsTrial, max_length=trek.epochs(2), records_per_epoch=16)
    assert [row["batches"] for row in result.metrics if row["group"] == "validation"] == [2, 4]


def test_a_result_knows_its_best_validation_and_its_table() -> None:
    result = fit(PointsTrial, max_length=trek.epochs(3), metric="accuracy", smaller_is_better=False)
    accuracies = [row["accuracy"] for row in result.metrics if row["group"] == "validation"]
    assert result.best is not None
    assert result.best["accuracy"] == max(accuracies)
    assert result.best_checkpoint is not None
    assert result.best_checkpoint.metrics["accuracy"] == max(accuracies)
    assert len(result.to_pandas()) == len(result.metrics)
    assert [set(row) for row in result.epochs] == [
        {"epoch", "train_loss", "valid_loss", "valid_accuracy", "time_s"}
    ] * 3


# -- mistakes


def returning(out: Any) -> type[trek.Trial]:
    return type("Returning", (PointsTrial,), {"train_batch": lambda self, batch, model: out(model(batch[0]))})


class Lacking(trek.Trial):
    """Has neither data nor steps."""

    def build_model(self) -> nn.Module:
        return nn.Linear(1, 1)


class Modelless(PointsTrial):
    """Declares no model at all."""

    build_model = trek.Trial.build_model


def evaluating(value: Any) -> type[PointsTrial]:
    class Evaluating(PointsTrial):
        def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
            return value

    return Evaluating


def evaluating_all(value: Any) -> type[PointsTrial]:
    class EvaluatingAll(PointsTrial):
        def evaluate_full_dataset(self, data_loader: Any, model: nn.Module) -> Any:
            return value

    return EvaluatingAll


def test_a_validation_without_metrics_may_be_declared() -> None:
    assert fit(evaluating({})).best is None
    assert fit(evaluating_all({})).best is None


class Greedy(PointsTrial):
    """Asks for more than there is."""

    def train_batch(self, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:  # type: ignore[override]
        return None


@pytest.mark.parametrize(
    ("trial", "settings", "error", "message"),
    [
        (returning(lambda out: out.mean(1)), {}, InputError, r"got a tensor of shape \(8,\). Take its mean"),
        (returning(lambda out: 3.0), {}, InputError, "scalar tensor, got float"),
        (returning(lambda out: out.mean().detach()), {}, InputError, "the loss depends on no parameter"),
        (returning(lambda out: None), {}, InputError, "train_batch returned None. Return the loss, or a dict"),
        (returning(lambda out: {"lose": out.mean()}), {}, InputError, r"must return a 'loss', got \['lose'\]"),
        (Lacking, {}, EntrypointError, "Lacking must define build_training_data_loader, build_validation_data_loader, "
         "train_batch, evaluate_batch"),
        (Modelless, {}, EntrypointError, "Modelless has no model. Define build_model, or wrap"),
        (Greedy, {}, EntrypointError, "may take only batch, model, epoch_idx, batch_idx, got a, b, c, d, e"),
        (nn.Linear, {}, EntrypointError, "Linear is not a Trial. Make it a subclass of trek.Trial"),
        (PointsTrial, {"hparams": {"global_batch_size": 0}}, ConfigError, "at least one record per process, got 0"),
        (PointsTrial, {"hparams": {"global_batch_size": "8"}}, ConfigError, "whole number .* got '8'"),
        (PointsTrial, {"workers": 0}, ConfigError, "workers must be a whole number of at least 1, got 0"),
        (PointsTrial, {"workers": 2, "strategy": "solo"}, ConfigError, "'solo' trains one replica, got 2 processes"),
        (PointsTrial, {"tempo": 3}, ConfigError, "unknown setting 'tempo'. Known settings: accumulate"),
        (PointsTrial, {"metric": "f1"}, ConfigError, "'f1' not found in the validation metrics"),
        (evaluating(None), {}, InputError, "evaluate_batch returned None for every batch, .* or {} for a validation"),
        (evaluating_all(None), {}, InputError, "evaluate_full_dataset returned None, .* or {} for a validation"),
        (evaluating(None), {"metric": "f1"}, ConfigError, "'f1' not found in a validation without metrics"),
        (evaluating({}), {"metric": "f1"}, ConfigError, "'f1' not found in a validation without metrics"),
        (PointsTrial, {"capture": True}, ConfigError, "needs a GPU"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_remedy(
    trial: Any, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    if settings.get("capture") and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(error, match=message):
        fit(trial, **settings)


def test_a_hyperparameter_that_is_not_set_is_named_with_those_that_are() -> None:
    class Wanting(PointsTrial):
        def build_model(self) -> nn.Module:
            return nn.Linear(6, self.context.get_hparam("width"))

    with pytest.raises(ConfigError, match=r"'width' not found.*known are: global_batch_size, rows"):
        fit(Wanting)
