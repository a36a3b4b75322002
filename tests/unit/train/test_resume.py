"""Stop anywhere, resume: the same run to the bit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, Sampler, TensorDataset

import trek
from trek.errors import CheckpointError, InputError
from trek.testing.trials import PointsTrial, make_points
from trek.train.result import Result

HPARAMS = {"global_batch_size": 8, "rows": 45, "dropout": 0.3, "momentum": 0.9}
NUM_BATCHES = 12  # two epochs of six, the sixth short


def fit(*, name: str, resume: str | None = None, hparams: dict[str, Any] | None = None, **settings: Any) -> Result:
    return trek.fit(
        PointsTrial,
        hparams={**HPARAMS, **(hparams or {})},
        max_length=trek.epochs(2),
        validation_period=trek.batches(5),
        name=name,
        resume=resume,
        report_period=3,
        show_progress=False,
        **settings,
    )


def told(result: Result) -> list[dict[str, Any]]:
    """What the run reported, but for how fast it was."""
    return sorted(
        (row for row in result.metrics if row["group"] != "system"), key=lambda row: (row["batches"], row["group"])
    )


def assert_same_run(resumed: Result, whole: Result) -> None:
    assert resumed.checkpoint is not None
    assert whole.checkpoint is not None
    expected = whole.checkpoint.state_dict()
    for name, weights in resumed.checkpoint.state_dict().items():
        assert torch.equal(weights, expected[name]), name
    assert told(resumed) == told(whole)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stop_at=st.integers(1, NUM_BATCHES - 1),
    data=st.sampled_from(["tensors", "mapped", "stream"]),
    accumulate=st.integers(1, 4),
    precision=st.sampled_from(["fp32", "bf16", "fp16"]),
)
def test_a_run_that_stopped_at_any_batch_goes_on_as_if_it_never_had(
    stop_at: int, data: str, accumulate: int, precision: str
) -> None:
    name = f"stop-{stop_at}-{data}-{accumulate}-{precision}"
    options: dict[str, Any] = {"accumulate": accumulate, "precision": precision}
    whole = fit(name=f"whole-{name}", hparams={"data": data}, **options)
    stopped = fit(name=name, hparams={"data": data, "stop_at": stop_at}, **options)
    assert stopped.stop_reason == "preempted"
    assert stopped.checkpoint is not None
    assert stopped.checkpoint.batches == stop_at
    assert_same_run(fit(name=name, resume="latest", hparams={"data": data}, **options), whole)


def test_worker_processes_of_a_loader_change_nothing_about_a_resume() -> None:
    hparams = {"data": "mapped", "num_workers": 2}
    whole = fit(name="whole", hparams=hparams)
    fit(name="part", hparams={**hparams, "stop_at": 4})
    assert_same_run(fit(name="part", resume="latest", hparams=hparams), whole)


def test_random_transforms_do_not_depend_on_the_number_of_loader_workers() -> None:
    one = fit(name="one", hparams={"data": "mapped", "num_workers": 1})
    two = fit(name="two", hparams={"data": "mapped", "num_workers": 2})
    assert_same_run(one, two)


def test_a_run_stopped_twice_is_still_the_same_run() -> None:
    whole = fit(name="whole")
    fit(name="part", hparams={"stop_at": 3})
    fit(name="part", resume="latest", hparams={"stop_at": 9})
    assert_same_run(fit(name="part", resume="latest"), whole)


def test_a_resume_from_an_earlier_checkpoint_is_exact_too() -> None:
    whole = fit(name="whole", checkpoint_period=trek.batches(5), keep_last=9)
    folder = whole.path / "checkpoints"
    early = trek.Checkpoint(sorted(folder.iterdir())[0])
    assert early.batches == 5
    again = trek.fit(
        PointsTrial,
        hparams=HPARAMS,
        max_length=trek.epochs(2),
        validation_period=trek.batches(5),
        resume=early,
        report_period=3,
        show_progress=False,
    )
    assert again.checkpoint is not None
    assert whole.checkpoint is not None
    for name, weights in whole.checkpoint.state_dict().items():
        assert torch.equal(weights, again.checkpoint.state_dict()[name])


def test_a_finished_run_that_is_resumed_trains_nothing_more() -> None:
    whole = fit(name="whole")
    again = fit(name="whole", resume="latest")
    assert_same_run(again, whole)


def test_a_checkpoint_of_another_model_is_refused_with_a_reason() -> None:
    fit(name="whole", hparams={"stop_at": 2})

    class Wider(PointsTrial):
        def build_model(self) -> torch.nn.Module:
            return torch.nn.Linear(6, 2)

    with pytest.raises(CheckpointError, match="does not match the model"):
        trek.fit(Wider, hparams=HPARAMS, max_length=trek.epochs(1), name="whole", resume="latest", show_progress=False)


def test_other_hyperparameters_than_the_checkpoints_take_effect() -> None:
    stopped = fit(name="first", hparams={"stop_at": 4, "lr": 0.1})
    assert stopped.checkpoint is not None
    changed = fit(name="second", hparams={"lr": 0.025}, resume=str(stopped.checkpoint.path))
    rates = {row["learning_rate"] for row in changed.metrics if row["group"] == "system" and row["batches"] > 4}
    assert rates == {0.025}


# -- what a checkpoint in the middle of an epoch holds


class Decaying(PointsTrial):
    """A learning rate that moves with every batch."""

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), "batch"


@pytest.mark.parametrize("at", [3, 5, 8])
def test_a_checkpoint_by_period_holds_the_schedulers_step_and_the_report_of_its_batch(at: int) -> None:
    """Checkpoints and reports fall together at 3, a validation that is the best so far at 5, and neither at 8."""
    settings: dict[str, Any] = {
        "hparams": HPARAMS,
        "max_length": trek.epochs(2),
        "validation_period": trek.batches(5),
        "report_period": 3,
        "show_progress": False,
    }
    whole = trek.fit(Decaying, name="whole", checkpoint_period=trek.batches(1), keep_last=99, **settings)
    saved = next(path for path in (whole.path / "checkpoints").iterdir() if path.name.startswith(f"batch-{at:010}"))
    resumed = trek.fit(Decaying, name="resumed", resume=saved, **settings)
    after = [row for row in told(whole) if row["batches"] > at]
    assert [row for row in told(resumed) if row["batches"] > at] == after
    assert resumed.checkpoint is not None
    assert whole.checkpoint is not None
    for name, weights in whole.checkpoint.state_dict().items():
        assert torch.equal(resumed.checkpoint.state_dict()[name], weights), name


# -- another global batch


class Remembering(PointsTrial):
    """Writes down the rows it trains on."""

    rows: list[int]

    def build_training_data_loader(self) -> Any:
        return trek.DataLoader((torch.arange(48.0)[:, None],), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return [torch.ones(1, 1)]

    def build_model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def train_batch(self, batch: Any, model: nn.Module) -> Any:
        type(self).rows += batch[0].flatten().int().tolist()
        return {"loss": model(batch[0]).mean()}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"error": model(batch).mean()}


@pytest.mark.parametrize(("before", "after"), [(8, 8), (8, 16), (16, 8), (8, 4), (16, 32)])
def test_a_run_that_goes_on_with_another_global_batch_trains_every_row_once(before: int, after: int) -> None:
    Remembering.rows = []
    size = {"global_batch_size": before}
    part = trek.fit(Remembering, hparams=size, max_length=trek.records(32), name="part", show_progress=False)
    size = {"global_batch_size": after}
    trek.fit(Remembering, hparams=size, max_length=trek.epochs(1), resume=part.checkpoint, show_progress=False)
    assert sorted(Remembering.rows) == list(range(48))


def test_a_place_that_is_inside_a_batch_of_another_size_is_refused() -> None:
    Remembering.rows = []
    size = {"global_batch_size": 8}
    part = trek.fit(Remembering, hparams=size, max_length=trek.batches(3), show_progress=False)
    with pytest.raises(InputError, match="was saved at record 24 of epoch 1, where no global batch of 16 starts"):
        trek.fit(
            Remembering,
            hparams={"global_batch_size": 16},
            max_length=trek.epochs(1),
            resume=part.checkpoint,
            show_progress=False,
        )


# -- samplers that cannot be restored, streams, and steps that changed


class Unseeded(Sampler[int]):
    """Other rows every time, from a generator that nobody keeps."""

    def __len__(self) -> int:
        return 48

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng().permutation(48).tolist())


def test_a_sampler_that_draws_other_rows_is_refused_in_the_middle_of_an_epoch() -> None:
    """It used to train some rows twice and others never, silently."""

    class Shuffled(Remembering):
        def build_training_data_loader(self) -> Any:
            rows = TensorDataset(torch.arange(48.0)[:, None])
            return trek.DataLoader(rows, 8, sampler=Unseeded())

    Shuffled.rows = []
    options: dict[str, Any] = {"hparams": {"global_batch_size": 8}, "show_progress": False}
    part = trek.fit(Shuffled, max_length=trek.batches(3), **options)
    with pytest.raises(InputError, match="sampler Unseeded drew other rows for epoch 1 than in the saved run"):
        trek.fit(Shuffled, max_length=trek.epochs(1), resume=part.checkpoint, **options)


class Streaming(Remembering):
    """A stream in batches of the given size."""

    def build_training_data_loader(self) -> Any:
        return list(torch.arange(48.0)[:, None].split(self.context.get_per_slot_batch_size()))

    def train_batch(self, batch: Any, model: nn.Module) -> Any:
        return super().train_batch((batch,), model)


@pytest.mark.parametrize(("before", "after"), [(8, 4), (4, 8), (8, 16), (6, 4)])
def test_a_stream_goes_on_at_its_record_with_batches_of_another_size(before: int, after: int) -> None:
    """It used to skip as many batches as were read, of whatever size they are now."""
    Streaming.rows = []
    part = trek.fit(
        Streaming,
        hparams={"global_batch_size": before},
        max_length=trek.batches(96 // before // 3),
        show_progress=False,
    )
    if 96 // before // 3 * before % after:
        with pytest.raises(InputError, match="where no batch of the stream ends"):
            resumed(Streaming, part, after)
    else:
        resumed(Streaming, part, after)
        assert sorted(Streaming.rows) == list(range(48))


def resumed(trial: type[trek.Trial], part: Result, size: int, **settings: Any) -> Result:
    return trek.fit(
        trial,
        hparams={"global_batch_size": size},
        max_length=trek.epochs(1),
        resume=part.checkpoint,
        show_progress=False,
        **settings,
    )


@pytest.mark.parametrize("trial", [Remembering, Streaming])
@pytest.mark.parametrize(("size", "accumulate"), [(4, 3), (8, 2), (8, 1)])
def test_a_step_that_is_half_done_is_not_finished_with_other_batches(
    trial: type[Remembering], size: int, accumulate: int
) -> None:
    """The batches before and after the resume used to be weighted by different totals."""
    trial.rows = []
    options: dict[str, Any] = {"hparams": {"global_batch_size": 8}, "show_progress": False}
    part = trek.fit(trial, max_length=trek.batches(2), accumulate=3, **options)
    with pytest.raises(InputError, match="saved after 16 of the 24 records whose gradients make one step"):
        resumed(trial, part, size, accumulate=accumulate)


def test_random_numbers_that_the_loop_draws_before_it_reads_are_drawn_again() -> None:
    """A resume at an epoch's end used to undo what the loop had drawn at the epoch's start."""

    def train(tr: trek.Traveler, stop_after: int) -> list[float]:
        model = tr.add_model(nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5)))
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        data = tr.add_loader((torch.arange(8.0)[:, None],), batch_size=4, shuffle=True)
        for _ in tr.epochs(3):
            scale = torch.rand(())
            for (x,) in tr.train(data):
                tr.backward((model(x) * scale).mean())
                tr.step(optimizer)
                if tr.position.batches == stop_after:
                    tr.save()
        return [p.item() for p in model.parameters()]

    whole = trek.run(train, 0, workers=1, name="whole")
    for stop_after in (1, 2, 3, 4):
        trek.run(train, stop_after, workers=1, name=f"part-{stop_after}", keep_last=9)
        folder = Path(os.environ["TREK_HOME"]) / "runs" / f"part-{stop_after}" / "checkpoints"
        saved = next(path for path in folder.iterdir() if f"{stop_after:010}" in path.name)
        assert trek.run(train, 0, workers=1, resume=saved) == whole


class Sparse(PointsTrial):
    """Rows of an embedding with sparse gradients."""

    def build_model(self) -> nn.Module:
        return nn.Embedding(50, 2, sparse=True)

    def build_training_data_loader(self) -> Any:
        rows = torch.randint(0, 50, (48,), generator=torch.Generator().manual_seed(0))
        return trek.DataLoader((rows, rows % 2), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return trek.DataLoader((torch.arange(50), torch.arange(50) % 2), 25)


def test_a_group_of_sparse_gradients_is_saved_and_finished() -> None:
    """Saving it half way used to fail."""
    options: dict[str, Any] = {"hparams": {"global_batch_size": 8}, "accumulate": 4, "show_progress": False}
    whole = trek.fit(Sparse, max_length=trek.epochs(2), **options)
    part = trek.fit(Sparse, max_length=trek.batches(3), **options)
    assert part.checkpoint is not None
    assert_same_weights(trek.fit(Sparse, max_length=trek.epochs(2), resume=part.checkpoint, **options), whole)


class WorkerShuffled(IterableDataset[Any]):
    """Each worker process shuffles with a generator that it keeps from epoch to epoch."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __iter__(self) -> Iterator[Any]:
        points, labels = make_points(40)
        return ((points[row], labels[row]) for row in self.rng.permutation(40))


def test_worker_processes_that_outlive_an_epoch_keep_nothing_from_it() -> None:
    """A resumed run's new workers used to read other rows."""

    class Kept(PointsTrial):
        def build_training_data_loader(self) -> Any:
            return TorchDataLoader(WorkerShuffled(), 10, num_workers=1, persistent_workers=True)

    options: dict[str, Any] = {"hparams": {"global_batch_size": 10}, "show_progress": False}
    whole = trek.fit(Kept, max_length=trek.epochs(2), **options)
    part = trek.fit(Kept, max_length=trek.epochs(1), **options)
    assert_same_weights(trek.fit(Kept, max_length=trek.epochs(2), resume=part.checkpoint, **options), whole)


def assert_same_weights(one: Result, other: Result) -> None:
    assert one.checkpoint is not None
    assert other.checkpoint is not None
    expected = other.checkpoint.state_dict()
    for name, weights in one.checkpoint.state_dict().items():
        assert torch.equal(weights, expected[name]), name
