"""Sharded replicas train what one process would, and a run may change strategy on its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import trek
from trek.errors import ConfigError
from trek.testing.trials import PointsTrial
from trek.train.result import Result

HPARAMS = {"global_batch_size": 6, "rows": 103, "double": True, "momentum": 0.9}


def fit(**settings: Any) -> Result:
    hparams = {**HPARAMS, **settings.pop("hparams", {})}
    return trek.fit(PointsTrial, hparams=hparams, max_length=trek.epochs(2), show_progress=False, **settings)


def assert_close(first: Result, second: Result, *, tolerance: float) -> None:
    assert first.checkpoint is not None
    assert second.checkpoint is not None
    expected = second.checkpoint.state_dict()
    for name, weights in first.checkpoint.state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=tolerance, atol=tolerance)


def test_sharded_replicas_equal_one_process_and_resume_to_the_bit() -> None:
    sharded = fit(workers=2, strategy="fsdp", clip_norm=0.5, accumulate=2)
    assert_close(sharded, fit(clip_norm=0.5, accumulate=2), tolerance=1e-9)
    options: dict[str, Any] = {"workers": 2, "strategy": "fsdp", "clip_norm": 0.5, "accumulate": 2, "name": "part"}
    fit(hparams={"stop_at": 10}, **options)
    assert_close(fit(resume="latest", **options), sharded, tolerance=0.0)


def test_a_run_goes_on_under_another_strategy_with_its_optimizer_state() -> None:
    whole = fit()
    solo = fit(hparams={"stop_at": 16})
    assert solo.checkpoint is not None
    sharded = fit(hparams={"stop_at": 20}, workers=2, strategy="fsdp", resume=solo.checkpoint)
    assert sharded.checkpoint is not None
    assert 20 <= sharded.checkpoint.batches < 36
    assert_close(fit(workers=2, strategy="ddp", resume=sharded.checkpoint), whole, tolerance=1e-9)


def test_fsdp_alone_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match="at least 2 processes, got 1"):
        fit(strategy="fsdp")


class WithoutState(PointsTrial):
    """Plain SGD, whose state is empty, or Adam; and a running mean that training reads."""

    def build_model(self) -> torch.nn.Module:
        return Centred(super().build_model())

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        kind = torch.optim.Adam if self.context.get_hparams().get("adam") else torch.optim.SGD
        return kind(model.parameters(), lr=0.1)


class Centred(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("mean", torch.zeros(6, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.inner(x - self.mean)


@pytest.mark.parametrize("adam", [False, True], ids=["sgd", "adam"])
def test_a_sharded_run_resumes_to_the_bit_from_inside_a_group(adam: bool) -> None:
    """It could not resume with plain SGD, and could not be saved inside a group of accumulated batches."""

    def go(length: trek.Length, **settings: Any) -> Result:
        options = {"workers": 2, "strategy": "fsdp", "accumulate": 3, "show_progress": False, **settings}
        hparams = {**HPARAMS, "adam": adam, "dropout": 0.3, "rows": 40}
        return trek.fit(WithoutState, hparams=hparams, max_length=length, **options)

    whole = go(trek.batches(12))
    part = go(trek.batches(8))
    assert part.checkpoint is not None
    assert part.checkpoint.batches == 8
    assert_close(go(trek.batches(12), resume=part.checkpoint), whole, tolerance=0.0)
    ddp = go(trek.batches(12), resume=part.checkpoint, strategy="ddp")
    assert_close(ddp, whole, tolerance=1e-9)


def test_a_group_that_was_begun_without_shards_is_finished_with_them() -> None:
    options: dict[str, Any] = {"accumulate": 4, "hparams": {"rows": 60}}
    part = fit(**{**options, "hparams": {"rows": 60, "stop_at": 6}})
    assert part.checkpoint is not None
    resumed = fit(workers=2, strategy="fsdp", resume=part.checkpoint, **options)
    assert_close(resumed, fit(**options), tolerance=1e-9)


def test_sparse_gradients_are_refused_with_a_remedy() -> None:
    """They used to fail deep inside torch, in the first backward pass."""

    class Embedded(PointsTrial):
        def build_model(self) -> torch.nn.Module:
            return torch.nn.Sequential(torch.nn.Embedding(5, 3, sparse=True))

    with pytest.raises(ConfigError, match=r"cannot shard '0.weight', whose gradient is sparse.*use strategy 'ddp'"):
        trek.fit(Embedded, hparams=HPARAMS, max_length=trek.batches(1), workers=2, strategy="fsdp", show_progress=False)


class Transformer(torch.nn.Module):
    """Blocks in containers, one of them used twice, a tied head, a layer of another type and a strided weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 8)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(2)])
        self.layers.append(self.layers[0])
        self.layers[1].weight = torch.nn.Parameter(self.layers[1].weight.detach().T.clone().T)
        self.named = torch.nn.ModuleDict({"inner": torch.nn.ModuleList([torch.nn.Linear(8, 8).double()])})
        self.head = torch.nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(self.named["inner"][0](x.double()).float())


def train_transformer(tr: trek.Traveler) -> dict[str, list[float]]:
    torch.manual_seed(0)
    model = tr.add_model(Transformer())
    optimizer = tr.add_optimizer(torch.optim.AdamW(model.parameters(), lr=0.01))
    ids = torch.randint(0, 20, (24, 3), generator=torch.Generator().manual_seed(1))
    data = tr.add_loader((ids,), global_batch_size=8, shuffle=True)
    for epoch in tr.epochs(3):
        for (x,) in tr.train(data):
            tr.backward(torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()))
            tr.step(optimizer)
        if epoch == 0:
            tr.save()
    return {name: weights.flatten().tolist() for name, weights in tr.strategy.model_state(model).items()}


def test_layers_in_containers_are_sharded_and_tied_weights_stay_tied(home: Path) -> None:
    """Containers and tied weights failed as soon as they had `shard_bytes`, which those of any real model have."""
    options: dict[str, Any] = {"workers": 2, "strategy": "fsdp", "strategy_options": {"shard_bytes": 1}}
    sharded = trek.run(train_transformer, name="sharded", show_progress=False, **options)
    alone = trek.run(train_transformer, workers=1, name="alone", show_progress=False)
    assert sharded.keys() == alone.keys()
    for name, weights in sharded.items():
        torch.testing.assert_close(torch.tensor(weights), torch.tensor(alone[name]), rtol=1e-4, atol=1e-5)
    (saved,) = (home / "runs" / "sharded" / "checkpoints").iterdir()
    assert trek.run(train_transformer, name="part", resume=saved, show_progress=False, **options) == sharded


class Borrowing(torch.nn.Module):
    """Uses the weight of its child while no forward pass of the child runs, as tied heads are often written."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.embedding, self.how = torch.nn.Embedding(20, 8), how

    def looked_up(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(ids, self.embedding.weight)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.looked_up(ids) if self.how == "a method" else self.embedding(ids)
        return torch.nn.functional.linear(hidden, self.embedding.weight)


def train_borrowing(tr: trek.Traveler, how: str) -> float:
    torch.manual_seed(0)
    model = tr.add_model(Borrowing(how))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in tr.epochs(1):
        for (x,) in tr.train(tr.add_loader((torch.arange(16),), global_batch_size=8)):
            loss = model(x).square().mean()
            tr.backward(loss)
            tr.step(optimizer)
            tr.log(loss=loss)
    return float(tr.results["train_loss"].iloc[-1])


@pytest.mark.parametrize("how", ["a method", "a function"])
def test_a_parameter_that_is_used_outside_of_its_module_is_one_error_and_works_with_the_remedy(how: str) -> None:
    """torch's own error names an operator, and two types of tensors that the program has never mentioned."""
    options: dict[str, Any] = {"workers": 2, "show_progress": False}
    with pytest.raises(ConfigError, match=r"F\.linear\(x, embedding\.weight\).*shard_bytes \(now 1\).*strategy 'ddp'"):
        trek.run(train_borrowing, how, strategy="fsdp", strategy_options={"shard_bytes": 1}, **options)
    sharded = trek.run(train_borrowing, how, strategy="fsdp", strategy_options={"shard_bytes": 1000}, **options)
    assert sharded == pytest.approx(trek.run(train_borrowing, how, **options), rel=1e-5)
