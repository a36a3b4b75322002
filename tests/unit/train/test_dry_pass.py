"""The dry pass before a run: what it finds, and that it changes no bit of the run."""

from __future__ import annotations

import itertools
import mmap
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader as TorchDataLoader
from torchmetrics.classification import MulticlassAccuracy

import trek
from trek.errors import ConfigError, InputError
from trek.testing.resuming import DATA, NumberedRows, ResumedTrial, differences, saved_state
from trek.testing.trials import PointsTrial
from trek.train.result import Result

POINTS = {"global_batch_size": 8, "rows": 32}
NUMBERS = {"global_batch_size": 4}


def fit(trial: type[trek.Trial], hparams: dict[str, Any], **chosen: Any) -> Result:
    given_: dict[str, Any] = {
        "max_length": trek.epochs(2),
        "validation_period": trek.batches(5),
        "report_period": 3,
        "show_progress": False,
        "name": "run",
    }
    return trek.fit(trial, hparams=hparams, **{**given_, **chosen})


def told(result: Result) -> list[dict[str, Any]]:
    """What the run reported, but for how fast it was."""
    pace = ("records_per_s", "data_wait")
    return [{name: value for name, value in row.items() if name not in pace} for row in result.metrics]


def check_nothing_changes(trial: type[trek.Trial], hparams: dict[str, Any], **chosen: Any) -> None:
    """Rows, metrics and the state at the end, with the places where reading would start again, are those without it."""
    runs = []
    for num_batches in (0, 1, 2):
        ResumedTrial.rows = []
        result = fit(trial, hparams, sanity_check=num_batches, **chosen)
        assert result.checkpoint is not None
        ranks = trek.Checkpoint(result.checkpoint.path).read().ranks
        runs.append((ResumedTrial.rows, told(result), saved_state(result.checkpoint.path), ranks))
    (rows, metrics, state, ranks), *others = runs
    for other_rows, other_metrics, other_state, other_ranks in others:
        assert other_rows == rows
        assert other_metrics == metrics
        assert not list(differences(other_state, state))
        assert not list(differences(other_ranks, ranks))


class Everything(trek.Trial):
    """Batch norm, dropout, buffers that are not saved, metrics and counters of all kinds."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.accuracy = MulticlassAccuracy(num_classes=2)
        self.seen: list[int] = []
        self.by_label: Counter[int] = Counter()
        self.noise = torch.Generator().manual_seed(3)
        self.mean = torch.zeros(3)
        self.largest = context.wrap_reducer(lambda values: max(values), name="largest")

    def build_model(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 2))
        model.register_buffer("calls", torch.zeros(()), persistent=False)
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=0.01)

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return ExponentialLR(optimizer, 0.9), "batch"

    def build_training_data_loader(self) -> Any:
        return TorchDataLoader(NumberedRows(), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return TorchDataLoader(
            NumberedRows(), 5, shuffle=True, num_workers=self.context.get_hparams().get("workers", 0)
        )

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        rows, values = batch
        model.calls += 1
        self.seen.extend(rows.tolist())
        self.by_label.update((rows % 2).tolist())
        self.mean += values.mean(0)
        values += 0.01 * torch.rand(values.shape, generator=self.noise)
        scores = model(values + 0.001 * self.mean + 0.001 * len(self.seen) + 0.001 * model.calls)
        self.accuracy.update(scores, rows % 2)
        self.largest.update(float(scores.detach().max()))
        seen = float(len(self.seen) + self.by_label[0])
        return {"loss": F.cross_entropy(scores, rows % 2), "accuracy": self.accuracy, "seen": seen}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        rows, values = batch
        scores = model(values)
        self.largest.update(float(scores.max()))
        return {"validation_loss": F.cross_entropy(scores, rows % 2)}


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.sampled_from(DATA),
    scheduler=st.sampled_from(["batch", "one_cycle", "epoch"]),
    accumulate=st.integers(1, 3),
    adam=st.booleans(),
    ema=st.sampled_from([None, 0.9]),
)
def test_a_run_is_the_same_to_the_bit_with_a_dry_pass(
    data: str, scheduler: str, accumulate: int, adam: bool, ema: float | None
) -> None:
    hparams = {**NUMBERS, "data": data, "scheduler": scheduler, "adam": adam}
    check_nothing_changes(ResumedTrial, hparams, accumulate=accumulate, ema_decay=ema)


@pytest.mark.parametrize("data", ["numpy", "own_stream"])
def test_worker_processes_of_a_loader_read_the_same_after_a_dry_pass(data: str) -> None:
    check_nothing_changes(ResumedTrial, {**NUMBERS, "data": data, "num_workers": 2}, accumulate=2)


@pytest.mark.parametrize(
    "chosen", [{}, {"precision": "bf16", "accumulate": 3}, {"precision": "fp16"}, {"ema_decay": 0.9, "clip_norm": 0.1}]
)
def test_buffers_metrics_and_counters_are_put_back(chosen: dict[str, Any]) -> None:
    check_nothing_changes(Everything, {**NUMBERS, "workers": int(not chosen)}, **chosen)


def test_a_resumed_run_is_the_one_that_never_stopped() -> None:
    whole = fit(ResumedTrial, {**NUMBERS, "data": "own_stream"}, sanity_check=0)
    begun = fit(ResumedTrial, {**NUMBERS, "data": "own_stream"}, max_length=trek.batches(3), sanity_check=2)
    ended = fit(ResumedTrial, {**NUMBERS, "data": "own_stream"}, resume=begun.checkpoint, sanity_check=2)
    assert whole.checkpoint is not None
    assert ended.checkpoint is not None
    assert not list(differences(saved_state(ended.checkpoint.path), saved_state(whole.checkpoint.path)))


# -- what it leaves alone


class Watched(PointsTrial):
    """Writes down what the process does, where nothing is put back."""

    done = ""

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        Watched.done += "t"
        return super().train_batch(batch, model, 0)

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        Watched.done += "e"
        return dict(super().evaluate_batch(batch, model))


@pytest.mark.parametrize(("num_batches", "dry"), [(0, ""), (1, "te"), (9, "teeee")])
def test_a_length_of_one_batch_trains_one(num_batches: int, dry: str) -> None:
    Watched.done = ""
    result = fit(Watched, {**POINTS, "rows": 8}, max_length=trek.batches(1), sanity_check=num_batches)
    assert Watched.done == dry + "teeee"
    assert {row["batches"] for row in result.metrics} == {1}


class Events(trek.Callback):
    """Every hook that is called, in text, which nothing puts back."""

    called = ""

    def on_training_start(self) -> None:
        Events.called += "start "

    def on_before_optimizer_step(self, parameters: Any) -> None:
        Events.called += "step "

    def on_training_workload_end(self, avg_metrics: dict[str, float], batch_metrics: list[Any]) -> None:
        Events.called += "report "

    def on_validation_end(self, metrics: dict[str, float]) -> None:
        Events.called += "validated "

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        Events.called += "saves "


class Eventful(PointsTrial):
    def build_callbacks(self) -> dict[str, trek.Callback]:
        return {"events": Events()}


def test_callbacks_are_not_called_by_a_dry_pass() -> None:
    Events.called = ""
    fit(Eventful, POINTS, max_length=trek.batches(1))
    assert Events.called == "start step report validated saves "


class Prepares(trek.Callback):
    def __init__(self, trial: Prepared) -> None:
        self._trial = trial

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self._trial.factor = 1.0

    def on_validation_start(self) -> None:
        self._trial.outputs = []


class Prepared(PointsTrial):
    """What its methods need is made by a callback."""

    factor: float
    outputs: list[Any]

    def build_callbacks(self) -> dict[str, trek.Callback]:
        return {"prepares": Prepares(self)}

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {"loss": self.factor * super().train_batch(batch, model, 0)["loss"]}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        self.outputs.append(batch)
        return dict(super().evaluate_batch(batch, model))


def test_a_trial_that_callbacks_prepare_trains() -> None:
    assert fit(Prepared, POINTS).checkpoint is not None


class ReadOnce(PointsTrial):
    """Trains on a generator, of which nothing can be read a second time."""

    numbers: list[int]

    def build_training_data_loader(self) -> Any:
        return ((number, torch.rand(4, 6)) for number in range(6))

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        number, points = batch
        type(self).numbers.append(number)
        return {"loss": model(points).square().mean()}


@pytest.mark.parametrize("accumulate", [1, 4])
def test_batches_that_can_be_read_only_once_are_all_trained(accumulate: int) -> None:
    states = []
    for num_batches in (0, 1, 3):
        ReadOnce.numbers = []
        chosen = {"max_length": trek.epochs(1), "accumulate": accumulate, "sanity_check": num_batches}
        result = fit(ReadOnce, POINTS, **chosen)
        assert ReadOnce.numbers == list(range(6))
        assert result.checkpoint is not None
        states.append(saved_state(result.checkpoint.path))
    assert not list(differences(states[1], states[0]))
    assert not list(differences(states[2], states[0]))


class Files(PointsTrial):
    """Keeps a file and points in TensorBoard with every batch, and saves in the middle."""

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        self.context.log_artifact(
            b"x", f"batch-{batch_idx}-{len(list(self.context.traveler.folder.glob('artifacts/*')))}"
        )
        return super().train_batch(batch, model, batch_idx)


def test_a_dry_pass_keeps_no_file() -> None:
    result = fit(Files, POINTS, max_length=trek.batches(2))
    assert sorted(path.name for path in (result.path / "artifacts").iterdir()) == ["batch-0-0", "batch-1-1"]


class Mapped(PointsTrial):
    """Has tensors over memory that cannot be written to."""

    def build_model(self) -> nn.Module:
        model = super().build_model()
        with warnings.catch_warnings(action="ignore"):
            model.register_buffer("table", torch.from_numpy(np.frombuffer(bytes(64), dtype=np.float32)))
        file = Path(self.context.get_hparam("folder"), "numbers")
        file.write_bytes(bytes(4096))
        with file.open("rb") as opened:
            mapped = mmap.mmap(opened.fileno(), 4096, prot=mmap.PROT_READ)
        with warnings.catch_warnings(action="ignore"):
            self.constants = torch.from_numpy(np.frombuffer(mapped, dtype=np.float32))
        return model


def test_memory_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    assert fit(Mapped, {**POINTS, "folder": str(tmp_path)}).checkpoint is not None


class Ends(PointsTrial):
    """Asks for an end in its first batch."""

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        self.context.set_stop_requested()
        return super().train_batch(batch, model, 0)


def test_a_stop_that_the_trial_asks_for_in_a_dry_pass_does_not_count() -> None:
    result = fit(Ends, POINTS)
    assert result.stop_reason == "user"
    assert result.checkpoint is not None
    assert result.checkpoint.batches == 1


# -- what it finds


class Broken(PointsTrial):
    """Trains well, and counts what is trained after the dry pass."""

    saved = 0

    def build_callbacks(self) -> dict[str, trek.Callback]:
        return {"saves": Saves()}


class Saves(trek.Callback):
    def on_training_workload_end(self, avg_metrics: dict[str, float], batch_metrics: list[Any]) -> None:
        raise AssertionError("the run has begun")


class NoResult(Broken):
    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        model(batch["point"] if isinstance(batch, dict) else batch[0])


class Detached(Broken):
    def train_batch(self, batch: Any, model: nn.Module) -> Any:
        return super().train_batch(batch, model, 0)["loss"].detach()


class NoLoss(Broken):
    def train_batch(self, batch: Any, model: nn.Module) -> Any:
        super().train_batch(batch, model, 0)


class AFloat(Broken):
    def train_batch(self, batch: Any, model: nn.Module) -> Any:
        return super().train_batch(batch, model, 0)["loss"].item()


class ComplexMetric(Broken):
    def train_batch(self, batch: Any, model: nn.Module) -> Any:
        return {**super().train_batch(batch, model, 0), "phase": torch.tensor(1 + 2j)}


class UnknownReduction(Broken):
    def evaluation_reducer(self) -> Any:
        return {"validation_loss": "median"}


def refuse(samples: list[Any]) -> Any:
    raise ValueError(f"cannot collate {len(samples)} samples")


class BadCollate(Broken):
    def build_validation_data_loader(self) -> Any:
        return trek.DataLoader(NumberedRows(), 4, collate_fn=refuse)


class Handle(trek.Callback):
    """Has a state that no checkpoint can hold."""

    def state_dict(self) -> dict[str, Any]:
        return {"socket": object()}


class Unsavable(Broken):
    def build_callbacks(self) -> dict[str, trek.Callback]:
        return {**super().build_callbacks(), "handle": Handle()}


FOUND: list[tuple[type[Broken], dict[str, Any], type[Exception], str]] = [
    (NoResult, {}, InputError, "evaluate_batch returned None for every batch"),
    (Broken, {"metric": "acuracy"}, ConfigError, "metric 'acuracy' not found in the validation metrics"),
    (Detached, {}, InputError, "the loss depends on no parameter that is trained"),
    (NoLoss, {}, InputError, "train_batch returned None. Return the loss, .* leaves backward"),
    (AFloat, {}, InputError, r"a scalar tensor, got float. Return the tensor itself, without item\(\)"),
    (ComplexMetric, {}, InputError, "metric 'phase' must be a real number, got Tensor"),
    (UnknownReduction, {}, InputError, "unknown reduction 'median'"),
    (BadCollate, {}, ValueError, "cannot collate 4 samples"),
    (Unsavable, {}, InputError, r"state\['stateful'\]\['callback_handle'\]\['socket'\] is a object"),
]


@pytest.mark.parametrize(("trial", "chosen", "kind", "words"), FOUND, ids=[trial.__name__ for trial, *_ in FOUND])
def test_a_mistake_is_found_before_the_run_begins(
    trial: type[Broken], chosen: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        fit(trial, POINTS, **{"report_period": 1, **chosen})


class LateMetric(PointsTrial):
    """Returns its metrics with the last batch alone."""

    def evaluate_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> Any:
        metrics = super().evaluate_batch(batch, model)
        return metrics if batch_idx == 3 else None


def test_metrics_may_come_with_a_later_batch() -> None:
    assert fit(LateMetric, POINTS, metric="validation_loss", sanity_check=2).checkpoint is not None


def test_a_loop_is_told_of_a_state_that_cannot_be_saved_before_its_first_batch(tmp_path: Path) -> None:
    trained = itertools.count()

    def train(tr: trek.Traveler) -> None:
        tr.add_state("handle", Handle())
        for _ in tr.epochs(1):
            for _ in tr.train([torch.zeros(2)]):
                next(trained)

    with pytest.raises(InputError, match=r"\['handle'\]\['socket'\] is a object"):
        trek.run(train, workers=1, checkpoint_dir=tmp_path, show_progress=False)
    assert next(trained) == 0


def test_the_settings_of_a_dry_pass_are_checked() -> None:
    with pytest.raises(ConfigError, match="sanity_check must be greater than or equal to 0, got -1"):
        trek.TrainSettings.of(sanity_check=-1)
