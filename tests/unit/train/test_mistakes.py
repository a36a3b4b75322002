"""Mistakes that used to end in an error from inside, now and for every setting: one sentence, before any training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import trek
from trek.errors import CheckpointError, InputError, StorageError, TrekError
from trek.testing.trials import PointsTrial
from trek.train.loggers.base import MetricRow
from trek.train.loggers.jsonl import JSONLLogger
from trek.train.settings import TrainSettings

HPARAMS = {"global_batch_size": 8, "rows": 16}


class Counts(PointsTrial):
    """Counts the batches that it trained."""

    trained = 0

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        Counts.trained += 1
        return super().train_batch(batch, model, batch_idx)


def fit(trial: type[trek.Trial] = Counts, **settings: Any) -> Any:
    Counts.trained = 0
    options = {"hparams": HPARAMS, "max_length": trek.epochs(1), "name": "run", "show_progress": False, **settings}
    return trek.fit(trial, **options)


# -- settings

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.tuples(st.text(max_size=2)),
    st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), st.integers(), max_size=2),
    st.dictionaries(
        st.sampled_from(["batches", "records", "epochs"]), st.one_of(st.integers(), st.floats(), st.text())
    ),
    st.sampled_from([object(), print, int, Path("x"), 1j, torch.tensor(1.0), torch.zeros(2), trek.batches(1)]),
)


def refusal(name: str, value: Any) -> str:
    try:
        TrainSettings.of(**{name: value})
    except TrekError as error:
        return str(error)
    return ""


@hypothesis_settings(max_examples=300)
@given(st.sampled_from(sorted(TrainSettings.model_fields)), ANYTHING)
def test_a_setting_is_valid_or_refused_in_a_sentence(name: str, value: Any) -> None:
    assert refusal(name, value)[-1:] in ("", ".")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"clip_norm": -1}, r"clip_norm must be greater than 0, got -1"),
    ({"validation_period": 5}, r"validation_period must be trek.batches\(n\), .* got 5"),
    ({"report_period": 0}, r"report_period must be greater than or equal to 1, got 0"),
    ({"accumulate": 2.5}, r"accumulate must be a valid integer, got 2.5"),
    ({"accumulate": 10**30}, r"accumulate must be less than"),
    ({"profile": "trace.json"}, r"profile must be a trek.ProfileSettings, got 'trace.json'"),
    ({"resume": "latest", "name": "nobody"}, r"resume='latest' found no run named 'nobody'"),
    ({"name": "x" * 300}, r"a folder name, so it must have at most 200 bytes, got 300"),
    ({"name": 3}, r"the name of a run must be text, got 3"),
    ({"hparams": 3}, r"hparams must be a dict of values by name, got 3"),
    ({"hparams": {1: 2}}, r"hparams must be a dict of values by name, got \{1: 2\}"),
    ({"data": "mnist"}, r"data must be a dict of values by name, got 'mnist'"),
    ({"engine": []}, r"engine \[\] does not exist"),
    ({"loggers": None}, r"loggers must be a list, got None"),
    ({"loggers": {"csv": 1}}, r"loggers must be a list"),
    ({"compile": "inductr"}, r"unknown backend 'inductr'"),
    ({"on_nan": "panic"}, r"on_nan must be 'warn' or 'stop', got 'panic'"),
    ({"workers": 0}, r"workers must be a whole number of at least 1, got 0"),
    ({"workers": 10**30}, r"workers must be at most 65536, got 1000"),
    ({"resume": 7}, r"resume must be"),
    ({"resume": "nowhere/at-all"}, r"nowhere/at-all"),
    ({"checkpoint_dir": 7}, r"checkpoint_dir must be"),
    ({"device": "cuda"}, r"unknown setting 'device'. The device is a GPU if there is one; .* TREK_DEVICE"),
    ({"epochs": 3, "max_length": None}, r"unknown setting 'epochs'. Pass max_length=trek.epochs\(3\)"),
    ({"max_epochs": 3}, r"unknown setting 'max_epochs'. Pass max_length=trek.epochs\(3\)"),
    ({"max_length": None}, r"trek.fit needs a max_length. Pass one, such as max_length=trek.epochs\(3\)"),
    ({"lr": "1e-3"}, r"unknown setting 'lr'. Put it into the hyperparameters, hparams=\{'lr': '1e-3'\}"),
    ({"batch_size": 8}, r"unknown setting 'batch_size'. Pass hparams=\{'global_batch_size': 8\}, or give"),
    ({"gpus": 2}, r"unknown setting 'gpus'. Pass workers=2, the number of processes that train"),
    ({"num_workers": 4}, r"unknown setting 'num_workers'. workers=n is the .*; num_workers=4 of a trek.DataLoader"),
    ({"model": torch.nn.Linear(1, 1)}, r"unknown setting 'model'. It is a method of the Trial"),
    ({"callbacks": [object()]}, r"unknown setting 'callbacks'. Return them from build_callbacks"),
    ({"hparams": {**HPARAMS, "lr": "1e-3"}}, r"hyperparameter 'lr' is the text '1e-3', and .* Write 0.001; YAML"),
]


@pytest.mark.parametrize(
    ("given_", "words"), WRONG, ids=[f"{next(iter(given_))}-{i}" for i, (given_, _) in enumerate(WRONG)]
)
def test_a_wrong_argument_is_one_sentence_before_any_batch(given_: dict[str, Any], words: str) -> None:
    with pytest.raises(TrekError, match=words):
        fit(**given_)
    assert Counts.trained == 0


class Unchecked(torch.optim.Optimizer):
    """Of another library, which does not look at what it is given."""

    def __init__(self, parameters: Any, lr: Any) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        raise NotImplementedError


def test_an_optimizer_with_text_for_a_number_is_refused() -> None:
    with trek.Traveler(world=trek.World(device_name="cpu"), show_progress=False) as tr:
        model = tr.add_model(nn.Linear(1, 1))
        with pytest.raises(InputError, match="lr of Unchecked is the text '1e-3' where a number"):
            tr.add_optimizer(Unchecked(model.parameters(), lr="1e-3"))


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"world": 3}, "world must be a trek.World, got 3"),
        ({"stop": 3}, "stop must be a StopRequest, got 3"),
        ({"settings": {"seed": 1}}, "settings must be a trek.TrainSettings, got"),
        ({"loggers": None}, "loggers must be a list, got None"),
        ({"loggers": ["cvs"]}, "logger 'cvs' does not exist"),
        ({"checkpoint_dir": 3}, "checkpoint_dir must be a folder or a URL, got 3"),
        ({"resume": 3}, "resume must be a checkpoint, its path, or 'latest', got 3"),
        ({"clip_nrom": 1}, "unknown setting 'clip_nrom'. Did you mean 'clip_norm'"),
    ],
)
def test_a_wrong_argument_of_a_traveler_is_one_sentence(given_: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        trek.Traveler(**given_)


def test_a_profile_may_be_written_to_a_text_path(tmp_path: Path) -> None:
    """A text as the path of a profile failed when the trace was written."""
    fit(profile=trek.ProfileSettings(1, 1, path=str(tmp_path / "trace.json")))
    assert (tmp_path / "trace.json").exists()
    for wrong in ({"first": 1.5}, {"last": "2"}, {"path": 3}):
        with pytest.raises(InputError):
            trek.ProfileSettings(**{"first": 1, "last": 2, **wrong})


# -- what a Trial builds


class Plateau(PointsTrial):
    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=1e9)


class PerBatch(PointsTrial):
    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return ReduceLROnPlateau(optimizer), "batch"


def test_reduce_lr_on_plateau_follows_the_metric_of_validations() -> None:
    """Its step needs a metric, so the first one failed."""
    result = fit(Plateau, max_length=trek.epochs(4), report_period=1)
    rates = [row["learning_rate"] for row in result.metrics if row["group"] == "system"]
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125])
    fit(Plateau, max_length=trek.epochs(2), name="part")
    resumed = fit(Plateau, max_length=trek.epochs(4), name="part", resume="latest")
    for name, weights in result.checkpoint.state_dict().items():
        assert torch.equal(weights, resumed.checkpoint.state_dict()[name])
    with pytest.raises(InputError, match="stepped with the metric of each validation, so it cannot step per 'batch'"):
        fit(PerBatch)


class WithLBFGS(Counts):
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(model.parameters())


class Extra(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"version": 3}

    def set_extra_state(self, state: Any) -> None:
        pass


class WithExtraState(Counts):
    def build_model(self) -> nn.Module:
        return nn.Sequential(Extra(6, 2))


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (WithLBFGS, r"LBFGS is not supported: its step\(\) needs a closure.*Use an optimizer such as"),
        (WithExtraState, r"'0._extra_state', which is a dict: a checkpoint holds only tensors"),
    ],
)
def test_what_cannot_be_trained_or_saved_is_refused_before_any_batch(trial: type[trek.Trial], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fit(trial)
    assert Counts.trained == 0


class WithAdam(Counts):
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters())


class TwoGroups(Counts):
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        first, *others = model.parameters()
        return torch.optim.SGD([{"params": [first]}, {"params": others}], lr=0.1)


class Stepped(Counts):
    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return StepLR(optimizer, 1)


class Cosine(Counts):
    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (Counts, WithAdam, "trained with the optimizer SGD, but this run has Adam. Resume with SGD"),
        (WithAdam, Counts, "trained with the optimizer Adam, but this run has SGD. Resume with Adam"),
        (Counts, TwoGroups, "does not match the optimizer SGD: .* Resume with the parameter groups"),
        (Stepped, Cosine, "trained with the scheduler StepLR, but this run has CosineAnnealingLR"),
        (Counts, Stepped, r"has 0 scheduler\(s\), but this run has 1"),
    ],
)
def test_a_resume_with_other_parts_is_refused(before: Any, after: Any, words: str) -> None:
    """Another optimizer loaded the state, and failed at its first step with a KeyError."""
    fit(before)
    with pytest.raises(CheckpointError, match=words):
        fit(after, max_length=trek.epochs(2), resume="latest")
    assert Counts.trained == 0


@pytest.mark.parametrize("wrong", [-1, 0, math.nan, "1"])
def test_a_step_is_clipped_by_a_positive_number_or_not_at_all(wrong: Any) -> None:
    """A negative norm turned the gradients around."""
    with trek.Traveler(world=trek.World(device_name="cpu"), show_progress=False) as tr:
        model = tr.add_model(nn.Linear(1, 1))
        sgd = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        for name in ("clip_norm", "clip_value"):
            with pytest.raises(InputError, match=f"{name} must be a number greater than 0, got "):
                tr.step(sgd, **{name: wrong})


# -- a full disk


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_under_the_metrics_is_one_sentence() -> None:
    """The error of the operating system came through, and another one from closing the file."""
    logger = JSONLLogger(Path("/dev/full"))
    logger.start(name="run", hparams={})
    for action in (lambda: logger.log_metrics(MetricRow("training", 1, 0, {}, time_s=0.0)), logger.close):
        with pytest.raises(StorageError, match=r"no space left in /dev/full\. Free some space"):
            action()
