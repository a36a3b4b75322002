"""Settings of a run: schedulers, averages, clipping, compiling, determinism, profiles."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR

import trek
from trek.errors import CheckpointError, ConfigError, InputError
from trek.testing.trials import PointsTrial, make_points
from trek.train.loop.profiling import ProfileSettings
from trek.train.result import Result

HPARAMS = {"global_batch_size": 10, "rows": 40, "momentum": 0.9}


def fit(trial: type[trek.Trial] = PointsTrial, **settings: Any) -> Result:
    hparams = {**HPARAMS, **settings.pop("hparams", {})}
    return trek.fit(
        trial, hparams=hparams, **{"max_length": trek.epochs(2), "name": "run", "show_progress": False, **settings}
    )


def weights(result: Result) -> dict[str, torch.Tensor]:
    assert result.checkpoint is not None
    return result.checkpoint.state_dict()


def assert_same(first: Result, second: Result) -> None:
    for name, expected in weights(second).items():
        assert torch.equal(weights(first)[name], expected), name


def by_hand(*, steps: int, update: Any, rows: int = 40) -> list[dict[str, torch.Tensor]]:
    """The weights after each step of a hand-written loop; `update(model, optimizer)` takes the step."""
    torch.manual_seed(0)
    points, labels = make_points(rows)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen = []
    for step in range(steps):
        epoch, batch = divmod(step, rows // 10)
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(epoch))[batch * 10 : batch * 10 + 10]
        F.cross_entropy(model(points[order]), labels[order]).backward()
        update(model, optimizer)
        optimizer.zero_grad()
        seen.append({name: w.detach().clone() for name, w in model.state_dict().items()})
    return seen


# -- schedulers


class Scheduled(PointsTrial):
    """A learning rate that halves, in the rhythm of the hyperparameter `per`."""

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        self.scheduler = ExponentialLR(optimizer, 0.5)
        per = self.context.get_hparam("per")
        return self.scheduler if per is None else (self.scheduler, per)


def rates(result: Result) -> list[float]:
    """The learning rate after each batch."""
    return [row["learning_rate"] for row in result.metrics if row["group"] == "system"]


@pytest.mark.parametrize(
    ("per", "accumulate", "expected"),
    [
        ("batch", 2, [0.05, 0.025, 0.0125, 0.00625]),
        ("step", 1, [0.05, 0.025, 0.0125, 0.00625]),
        ("step", 2, [0.1, 0.05, 0.05, 0.025]),
        ("epoch", 1, [0.1, 0.1, 0.1, 0.1]),
        (None, 1, [0.1, 0.1, 0.1, 0.1]),
        ("manual", 1, [0.1, 0.1, 0.1, 0.1]),
    ],
)
def test_a_scheduler_steps_in_the_rhythm_asked_for_and_the_rate_is_told(
    per: str | None, accumulate: int, expected: list[float]
) -> None:
    result = fit(Scheduled, hparams={"per": per}, report_period=1, accumulate=accumulate)
    assert rates(result)[:4] == pytest.approx(expected)
    assert rates(result)[4] == pytest.approx({"epoch": 0.05, None: 0.05, "manual": 0.1}.get(per, rates(result)[4]))


@pytest.mark.parametrize("per", ["batch", "step", "epoch"])
def test_a_scheduler_goes_on_after_a_resume(per: str) -> None:
    whole = fit(Scheduled, hparams={"per": per}, accumulate=3)
    fit(Scheduled, hparams={"per": per, "stop_at": 5}, accumulate=3, name="part")
    assert_same(fit(Scheduled, hparams={"per": per}, accumulate=3, name="part", resume="latest"), whole)


def test_a_rhythm_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="per 'step', 'batch', 'epoch' or 'manual', got 'hour'"):
        fit(Scheduled, hparams={"per": "hour"})


def test_each_optimizers_steps_move_its_own_scheduler_and_every_counts_them() -> None:
    def train(tr: trek.Traveler) -> list[list[float]]:
        models = [tr.add_model(nn.Linear(1, 1)) for _ in range(2)]
        optimizers = [tr.add_optimizer(torch.optim.SGD(m.parameters(), lr=1.0)) for m in models]
        for optimizer, every in zip(optimizers, (1, 2), strict=True):
            tr.add_scheduler(LambdaLR(optimizer, lambda step: 1.0 + step), per="step", every=every)
        seen = []
        for _ in tr.epochs(1):
            for x in tr.train([torch.ones(1, 1)] * 3):
                for model, optimizer in zip(models, optimizers, strict=True):
                    tr.backward(model(x).sum())
                    tr.step(optimizer)
                seen.append([float(o.param_groups[0]["lr"]) for o in optimizers])
        return seen

    assert trek.run(train, workers=1, show_progress=False) == [[2, 1], [3, 2], [4, 2]]


# -- averages


class RecordsWeights(PointsTrial):
    """Reports the sum of the weights it is validated with."""

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {"loss": sum(p.double().sum() for p in model.parameters())}


def test_validation_uses_the_moving_average_and_training_the_weights() -> None:
    steps = by_hand(steps=8, update=lambda model, optimizer: optimizer.step())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 2))
    average = {name: w.detach().clone() for name, w in model.state_dict().items()}
    for after in steps:
        for name in average:
            average[name].lerp_(after[name], 1.0 - 0.7)
    result = fit(RecordsWeights, ema_decay=0.7)
    for name, expected in steps[-1].items():
        assert torch.equal(weights(result)[name], expected)
    told = [row["loss"] for row in result.metrics if row["group"] == "validation"]
    assert told[-1] == pytest.approx(sum(w.double().sum().item() for w in average.values()), rel=1e-7)


def test_averages_go_on_exactly_after_a_resume() -> None:
    def told(result: Result) -> list[float]:
        return [row["loss"] for row in result.metrics if row["group"] == "validation"]

    whole = fit(RecordsWeights, ema_decay=0.7)
    fit(RecordsWeights, ema_decay=0.7, hparams={"stop_at": 6}, name="part")
    resumed = fit(RecordsWeights, ema_decay=0.7, name="part", resume="latest")
    assert_same(resumed, whole)
    assert told(resumed) == told(whole)


def test_a_resume_without_the_average_it_had_is_refused() -> None:
    fit(ema_decay=0.7, hparams={"stop_at": 6})
    with pytest.raises(CheckpointError, match=r"has 1 moving average\(s\), but this run has 0"):
        fit(resume="latest")


def test_an_average_follows_the_steps_of_its_own_model() -> None:
    def train(tr: trek.Traveler) -> list[float]:
        models = [tr.add_model(nn.Linear(1, 1, bias=False)) for _ in range(2)]
        for model in models:
            nn.init.zeros_(model.weight)
        optimizers = [tr.add_optimizer(torch.optim.SGD(m.parameters(), lr=1.0)) for m in models]
        for _ in tr.epochs(1):
            for x in tr.train([torch.ones(1, 1)]):
                for model, optimizer in zip(models, optimizers, strict=True):
                    tr.backward(model(x).sum())
                    tr.step(optimizer)
        tr.loop.begin_validation()
        averages = [model.weight.item() for model in models]
        tr.loop.end_validation()
        return averages

    # Made before the weights were zeroed, an average remembers their first values; one step moves it by half.
    torch.manual_seed(0)
    first = [nn.Linear(1, 1, bias=False).weight.item() for _ in range(2)]
    expected = [(start - 1.0) / 2 for start in first]
    assert trek.run(train, workers=1, ema_decay=0.5, show_progress=False) == pytest.approx(expected)


@pytest.mark.parametrize("decay", [0.0, 1.0, 2.0])
def test_a_decay_outside_of_0_and_1_is_refused(decay: float) -> None:
    with pytest.raises(ConfigError, match=f"ema_decay must be (greater than 0|less than 1), got {decay}"):
        fit(ema_decay=decay)


# -- gradients


def test_gradients_are_clipped_by_value_as_torch_does() -> None:
    def update(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()

    expected = by_hand(steps=8, update=update)[-1]
    for name, weight in weights(fit(clip_value=0.01)).items():
        assert torch.equal(weight, expected[name])


def test_a_step_may_bring_its_own_clipping() -> None:
    def train(tr: trek.Traveler) -> float:
        model = tr.add_model(nn.Linear(1, 1, bias=False))
        nn.init.zeros_(model.weight)
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
        for _ in tr.epochs(1):
            for x in tr.train([torch.full((1, 1), 5.0)]):
                tr.backward(model(x).sum())
                tr.step(optimizer, clip_norm=2.0)
        return float(model.weight.item())

    assert trek.run(train, workers=1, show_progress=False) == pytest.approx(-2.0, rel=1e-5)


# -- switches


def test_a_compiled_model_trains_and_saves_the_same() -> None:
    assert_same(fit(compile="eager", name="compiled"), fit())


class Deterministic(PointsTrial):
    """Reports whether torch was told to be deterministic."""

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {"is_on": float(torch.are_deterministic_algorithms_enabled()), "loss": 0.0}


@pytest.mark.parametrize("was_on", [False, True])
def test_determinism_is_on_for_the_run_and_as_before_afterwards(was_on: bool) -> None:
    torch.use_deterministic_algorithms(was_on)
    try:
        result = fit(Deterministic, deterministic=True)
        assert [row["is_on"] for row in result.metrics if row["group"] == "validation"] == [1.0, 1.0]
        assert torch.are_deterministic_algorithms_enabled() == was_on
        assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("first", "last", "expected"), [(3, 4, 2), (7, 99, 2)])
def test_a_profile_holds_the_batches_asked_for(tmp_path: Path, first: int, last: int, expected: int) -> None:
    class Marked(PointsTrial):
        def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
            with torch.profiler.record_function(f"batch {batch_idx + 1}"):
                return super().train_batch(batch, model, batch_idx)

    path = tmp_path / "traces" / "run.json"
    fit(Marked, profile=ProfileSettings(first, last, path))
    events = json.loads(path.read_text())["traceEvents"]
    marks = {event["name"] for event in events if str(event.get("name")).startswith("batch ")}
    assert marks == {f"batch {first + i}" for i in range(expected)}


def test_a_profile_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigError, match="got 4 to 3"):
        ProfileSettings(4, 3, Path("x"))
