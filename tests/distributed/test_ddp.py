"""Several real processes train what one would."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.errors import InputError, RankFailed
from trek.testing.trials import PointsTrial, make_points
from trek.train.result import Result


class FailingTrial(PointsTrial):
    """Rank 1 raises in its third batch."""

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        if self.context.distributed.get_rank() == 1 and batch_idx == 2:
            raise RuntimeError("the user's own mistake")
        return super().train_batch(batch, model, batch_idx)


class BadLossTrial(PointsTrial):
    """Returns a loss that is not a scalar."""

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        points, labels = batch
        return {"loss": F.cross_entropy(model(points), labels, reduction="none")}


def fit(trial: type[trek.Trial] = PointsTrial, *, workers: int, **settings: Any) -> Result:
    hparams = {"global_batch_size": 6, "rows": 31, "double": True, "momentum": 0.9, **settings.pop("hparams", {})}
    return trek.fit(trial, hparams=hparams, max_length=trek.epochs(2), workers=workers, show_progress=False, **settings)


def assert_close(first: Result, second: Result, *, tolerance: float = 1e-9) -> None:
    assert first.checkpoint is not None
    assert second.checkpoint is not None
    expected = second.checkpoint.state_dict()
    for name, weights in first.checkpoint.state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("workers", [2, 3])
def test_n_processes_equal_one_with_the_same_global_batch(workers: int) -> None:
    """31 rows in batches of 6: the last batch holds one row, so all ranks but one have none of it."""
    one, many = fit(workers=1), fit(workers=workers)
    assert_close(many, one)
    for row, expected in zip(many.metrics, one.metrics, strict=True):
        if row.pop("group") != "system":
            expected.pop("group")
            assert row == pytest.approx(expected, rel=1e-9)


def test_three_processes_share_a_batch_of_16_whole() -> None:
    hparams = {"global_batch_size": 16, "rows": 50}
    assert_close(fit(workers=3, hparams=hparams), fit(workers=1, hparams=hparams))


def test_accumulation_over_uneven_groups_is_exact_on_two_processes() -> None:
    assert_close(fit(workers=2, accumulate=4), fit(workers=1, accumulate=4))


def test_gradients_give_the_same_result_whichever_way_they_travel() -> None:
    def train(tr: trek.Traveler) -> tuple[str, dict[str, list[float]]]:
        model = tr.add_model(nn.Linear(6, 2).double())
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        data = tr.add_loader(make_points(31, dtype=torch.float64), batch_size=3, shuffle=True)
        for _ in tr.epochs(2):
            for points, labels in tr.train(data):
                tr.backward(F.cross_entropy(model(points), labels))
                tr.step(optimizer)
        weights = {name: w.flatten().tolist() for name, w in tr.strategy.model_state(model).items()}
        return type(model).__name__, weights

    def run(**options: Any) -> Any:
        return trek.run(train, workers=2, accumulate=2, strategy_options=options)

    kind, in_memory = run()
    flat_kind, flat = run(shared_memory=False)
    bucketed_kind, bucketed = run(shared_memory=False, flat_bytes=0)
    assert {kind, flat_kind, bucketed_kind} == {"Linear"}, "a model keeps its class"
    for name in in_memory:
        assert in_memory[name] == pytest.approx(flat[name], rel=1e-12)
        assert in_memory[name] == pytest.approx(bucketed[name], rel=1e-12)


def test_large_gradients_are_averaged_where_they_are_and_unused_ones_stay_none() -> None:
    def train(tr: trek.Traveler) -> list[Any]:
        layers = nn.ModuleList([nn.Linear(1200, 300, bias=False), nn.Linear(1200, 300), nn.Linear(1200, 300)])
        model = tr.add_model(layers)
        tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        x = torch.full((1, 1200), float(tr.world.rank + 1))
        used = model[0](x).sum() + (model[1](x).sum() if tr.world.is_leader else 0)  # the third by nobody
        tr.backward(used)
        tr.strategy.sync_gradients(list(model.parameters()))
        return [p.grad.unique().tolist() if p.grad is not None else None for p in model.parameters()]

    assert trek.run(train, workers=2) == [[1.5], [0.5], [0.5], None, None]


def test_a_stream_that_ends_earlier_on_one_rank_loses_no_row_and_hangs_nobody() -> None:
    def train(tr: trek.Traveler) -> list[float]:
        model = tr.add_model(nn.Linear(1, 1, bias=False).double())
        with torch.no_grad():
            model.weight.fill_(0.0)
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
        batches = [torch.full((n, 1), float(i + 1), dtype=torch.float64) for i, n in enumerate((4, 2, 3))]
        seen = []
        for _ in tr.epochs(1):
            for x in tr.train(batches):
                tr.backward((model(torch.ones_like(x)) * x).mean())
                tr.step(optimizer)
                seen.append(model.weight.item())
        return seen

    first = -(4 * 1 + 2 * 2) / 6
    assert trek.run(train, workers=2) == pytest.approx([first, first - 3.0])


def test_a_stopped_run_resumes_to_the_bit_on_two_processes() -> None:
    hparams = {"data": "mapped", "dropout": 0.3, "rows": 130}
    whole = fit(workers=2, hparams=hparams, name="whole")
    stopped = fit(workers=2, hparams={**hparams, "stop_at": 10}, name="part")
    assert stopped.stop_reason == "preempted"
    assert stopped.checkpoint is not None
    assert 10 <= stopped.checkpoint.batches <= 16  # ranks agree on a stop at least every 16 batches
    resumed = fit(workers=2, hparams=hparams, name="part", resume="latest")
    assert_close(resumed, whole, tolerance=0.0)


def test_a_run_resumes_on_another_number_of_processes_with_the_same_global_batches() -> None:
    whole = fit(workers=1, accumulate=3)
    fit(workers=2, accumulate=3, hparams={"stop_at": 4, "rows": 130}, name="warm")  # a real stop in the middle
    part = fit(workers=1, accumulate=3, hparams={"stop_at": 4}, name="part")
    assert part.checkpoint is not None
    assert part.checkpoint.batches == 4
    assert_close(fit(workers=3, accumulate=3, name="part", resume="latest"), whole)


def test_the_users_exception_is_named_with_its_rank_and_frames_and_nothing_of_ours() -> None:
    with pytest.raises(RankFailed) as caught:
        fit(FailingTrial, workers=2)
    assert caught.value.rank == 1
    assert "the user's own mistake" in str(caught.value)
    assert "test_ddp.py" in caught.value.traceback_text
    assert "trek/train" not in caught.value.traceback_text


def test_a_mistake_that_trek_names_comes_back_as_itself() -> None:
    with pytest.raises(InputError, match="scalar"):
        fit(BadLossTrial, workers=2)


def return_everything(tr: trek.Traveler) -> Any:
    return {"tuple": (1, 2), 3: {4}, "tensor": torch.arange(3, dtype=torch.int16), "bytes": b"x", "size": tr.world.size}


def test_the_number_of_processes_does_not_change_what_is_returned() -> None:
    """Tuples came back as lists, integer keys as text, and a tensor was an error after the training."""
    one, two = (trek.run(return_everything, workers=workers, show_progress=False) for workers in (1, 2))
    assert (one.pop("size"), two.pop("size")) == (1, 2)
    assert torch.equal(one.pop("tensor"), two["tensor"])
    assert two.pop("tensor").dtype == torch.int16
    assert one == two == {"tuple": (1, 2), 3: {4}, "bytes": b"x"}
