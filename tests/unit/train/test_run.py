"""The explicit loop: what a Traveler gives it, how `trek.run` starts it, and that it resumes as if it never stopped."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.errors import CheckpointError, ConfigError, InputError
from trek.testing.trials import make_points
from trek.train.loop.stopping import Stopped
from trek.train.settings import TrainSettings

Weights = dict[str, torch.Tensor]


def train(tr: trek.Traveler, epochs: int = 2, stop_at: int = -1, rows: int = 45) -> Weights:
    """A loop as a user writes it, with dropout, momentum and validation; it can ask itself to stop."""
    model = tr.add_model(nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 2)))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    tr.add_scheduler(torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5), per="batch")
    data = tr.add_loader(make_points(rows), batch_size=8, shuffle=True)
    validation = tr.add_loader(make_points(50), batch_size=16)
    for _ in tr.epochs(epochs):
        for points, labels in tr.train(data):
            if tr.position.batches == stop_at:
                tr.stop.request("user")
            with tr.autocast():
                loss = F.cross_entropy(model(points), labels)
            tr.backward(loss)
            tr.step(optimizer)
            tr.log(loss=loss)
        for points, labels in tr.validate(validation):
            assert not model.training
            assert not torch.is_grad_enabled()
            tr.log(loss=F.cross_entropy(model(points), labels))
    return dict(model.state_dict())


def run(*args: Any, **settings: Any) -> Any:
    return trek.run(train, *args, **{"workers": 1, "show_progress": False, **settings})


def assert_same(first: Weights, second: Weights) -> None:
    assert first
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("stop_at", [1, 5, 6, 7, 11])
@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_loop_that_stopped_goes_on_from_the_latest_as_if_it_never_had(stop_at: int, accumulate: int) -> None:
    whole = run(name="whole", accumulate=accumulate)
    assert run(2, stop_at, name="part", accumulate=accumulate) is None
    assert_same(run(name="part", accumulate=accumulate, resume="latest"), whole)


def test_a_loop_saves_by_period_and_goes_on_from_any_of_them(home: Path) -> None:
    whole = run(name="whole", checkpoint_period=trek.batches(5), keep_last=9)
    folder = home / "runs" / "whole" / "checkpoints"
    saved = [trek.Checkpoint(path) for path in sorted(folder.iterdir())]
    assert [one.batches for one in saved] == [5, 10]
    for resume in (saved[0], saved[0].path, str(saved[1].path)):
        assert_same(run(name="again", resume=resume), whole)


def test_a_checkpoint_of_an_epoch_comes_after_its_validation_so_that_the_best_is_kept(home: Path) -> None:
    def scripted(tr: trek.Traveler) -> None:
        model = tr.add_model(nn.Linear(6, 2))
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        data = tr.add_loader(make_points(16), batch_size=8)
        for epoch in tr.epochs(4):
            for points, labels in tr.train(data):
                tr.backward(F.cross_entropy(model(points), labels))
                tr.step(optimizer)
            for _ in tr.validate([make_points(4)]):
                tr.log(loss=(0.5, 0.1, 0.7, 0.9)[epoch])

    trek.run(scripted, workers=1, name="best", checkpoint_period=trek.epochs(1), show_progress=False)
    kept = [trek.Checkpoint(path) for path in sorted((home / "runs" / "best" / "checkpoints").iterdir())]
    assert [(one.batches, one.metrics) for one in kept] == [(4, {"loss": 0.1}), (8, {"loss": 0.9})]


def test_a_loop_may_train_in_phases() -> None:
    def phases(tr: trek.Traveler) -> list[int]:
        model = tr.add_model(nn.Linear(6, 2))
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        data = tr.add_loader(make_points(16), batch_size=8)

        def epoch() -> None:
            for points, labels in tr.train(data):
                tr.backward(F.cross_entropy(model(points), labels))
                tr.step(optimizer)

        seen = []
        for number in (*tr.epochs(2), *tr.epochs(3)):
            seen.append(number)
        assert seen == [0, 1, 2], "epochs(3) continues where epochs(2) ended"
        epoch()
        return [*seen, tr.position.epoch, tr.position.batches]

    assert trek.run(phases, workers=1, show_progress=False) == [0, 1, 2, 4, 2]


def test_a_loop_that_would_never_come_to_its_length_is_told_so() -> None:
    def idle(tr: trek.Traveler) -> None:
        for _ in tr.epochs(3):
            pass

    assert trek.run(idle, workers=1, show_progress=False) is None
    with pytest.raises(InputError, match=r"its length is 5 batches, but the loop read no batch"):
        trek.run(idle, workers=1, show_progress=False, max_length=trek.batches(5))


def test_a_loop_may_save_and_restore_itself(tmp_path: Path) -> None:
    def small(*, resume: bool) -> tuple[float, list[int]]:
        with trek.Traveler(checkpoint_dir=tmp_path, show_progress=False) as tr:
            model = tr.add_model(nn.Linear(1, 1, bias=False))
            optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
            counter = Counter()
            tr.add_state("counter", counter)
            if resume:
                restored = tr.restore("latest")
                assert restored is not None
                assert restored.batches == 2
            for _ in tr.epochs(1):
                for x in tr.train([torch.full((1, 1), float(i)) for i in range(4)]):
                    counter.seen.append(int(x))
                    tr.backward(model(x).sum())
                    tr.step(optimizer)
                    if tr.position.batches == 2 and not resume:
                        assert tr.save() is not None
            return model.weight.item(), counter.seen

    whole = small(resume=False)
    assert whole[1] == [0, 1, 2, 3]
    assert small(resume=True) == whole


class Counter:
    """Something of the user's own that a checkpoint keeps."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = list(state["seen"])


def test_saving_without_a_place_and_resuming_from_none_are_refused_with_a_remedy() -> None:
    with trek.Traveler(show_progress=False) as tr:
        tr.add_model(nn.Linear(1, 1))
        with pytest.raises(InputError, match=r"no checkpoint_dir is set\. Pass checkpoint_dir"):
            tr.save()
        with pytest.raises(InputError, match="resume='latest' needs a checkpoint_dir"):
            tr.restore("latest")


def test_a_checkpoint_of_other_parts_is_refused(tmp_path: Path) -> None:
    with trek.Traveler(checkpoint_dir=tmp_path) as tr:
        tr.add_model(nn.Linear(1, 1))
        tr.save()
    with trek.Traveler(checkpoint_dir=tmp_path) as tr:
        for _ in range(2):
            tr.add_model(nn.Linear(1, 1))
        with pytest.raises(CheckpointError, match=r"has 1 model\(s\), but this run has 2"):
            tr.restore("latest")


def test_a_finished_run_may_go_on_further_even_after_it_was_resumed_for_nothing() -> None:
    whole = run(3, name="whole", checkpoint_period=trek.epochs(1))
    run(2, name="part", checkpoint_period=trek.epochs(1))
    run(2, name="part", resume="latest")
    assert_same(run(3, name="part", resume="latest"), whole)


def test_a_stop_between_two_epochs_trains_nothing_more(home: Path) -> None:
    def asked(tr: trek.Traveler) -> None:
        model = tr.add_model(nn.Linear(6, 2))
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        data = tr.add_loader(make_points(16), batch_size=8)
        for _ in tr.epochs(9):
            for points, labels in tr.train(data):
                tr.backward(F.cross_entropy(model(points), labels))
                tr.step(optimizer)
            tr.stop.request("user")

    trek.run(asked, workers=1, name="asked", show_progress=False)
    (path,) = (home / "runs" / "asked" / "checkpoints").iterdir()
    assert trek.Checkpoint(path).batches == 2


def test_outside_of_run_a_stop_ends_the_program_quietly(tmp_path: Path) -> None:
    with trek.Traveler(checkpoint_dir=tmp_path, show_progress=False) as tr, pytest.raises(Stopped) as stopped:
        train(tr, 2, 3)
    assert stopped.value.code == 0
    assert stopped.value.reason == "user"


# -- what the loop is told


def test_the_table_of_epochs_holds_losses_by_sample_and_a_time() -> None:
    losses: list[tuple[float, int]] = []

    def watched(tr: trek.Traveler) -> pd.DataFrame:
        model = tr.add_model(nn.Linear(6, 2))
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        data = tr.add_loader(make_points(20), batch_size=8, shuffle=True)
        for _ in tr.epochs(2):
            for points, labels in tr.train(data):
                loss = F.cross_entropy(model(points), labels)
                losses.append((loss.item(), len(points)))
                tr.backward(loss)
                tr.step(optimizer)
                tr.log(loss=loss)
            for _, labels in tr.validate([make_points(10)]):
                tr.log(valid_loss=float(tr.position.epoch), rows=len(labels))
        return tr.results

    table = trek.run(watched, workers=1, show_progress=False)
    assert list(table.columns) == ["epoch", "train_loss", "valid_loss", "valid_rows", "time"]
    assert list(table["epoch"]) == [0, 1]
    assert list(table["valid_loss"]) == [1, 2]
    for epoch, told in enumerate(table["train_loss"]):
        mine = losses[epoch * 3 : epoch * 3 + 3]
        assert told == pytest.approx(sum(value * n for value, n in mine) / 20)
    assert table["time"].str.fullmatch(r"\d\d:\d\d").all()


def test_a_body_that_trains_on_data_of_its_own_still_counts_epochs() -> None:
    with trek.Traveler(show_progress=False) as tr:
        assert list(tr.epochs(3)) == [0, 1, 2]


def test_the_bar_shows_the_epoch_and_its_batches(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    run(name="bar", show_progress=True)
    shown = capsys.readouterr().err
    assert "epoch: 1/2:" in shown
    assert "epoch: 2/2:" in shown
    assert "0/6" in shown
    run(name="none", show_progress=False)
    assert capsys.readouterr().err == ""


def test_data_that_can_be_read_only_once_is_an_error_in_its_second_epoch() -> None:
    def once(tr: trek.Traveler) -> None:
        model = tr.add_model(nn.Linear(1, 1))
        data = tr.add_loader(torch.ones(1, 1) for _ in range(3))
        for _ in tr.epochs(2):
            for x in tr.train(data):
                tr.backward(model(x).sum())

    with pytest.raises(InputError, match=r"no batch in epoch 2.* a generator"):
        trek.run(once, workers=1, show_progress=False)


# -- mistakes


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"workers": 0}, InputError, "workers must be a whole number of at least 1, got 0"),
        ({"precision": "fp8"}, ConfigError, "precision must be 'fp32', 'bf16' or 'fp16', got 'fp8'"),
        ({"strategy": "magic"}, ConfigError, "strategy 'magic' does not exist. Use one of: ddp, fsdp, ps, solo"),
        ({"strategy": "fsdp"}, ConfigError, "needs at least 2 processes, got 1"),
        ({"accumulate": 0}, ConfigError, "accumulate must be greater than or equal to 1, got 0"),
        ({"strategy": "ddp", "strategy_options": {"backend": "mpi"}}, ConfigError, "backend 'mpi'. Use gloo"),
        ({"strategy_options": {"speed": 3}}, ConfigError, "strategy 'solo' has no setting 'speed'. It has: none"),
        ({"seed": -1}, InputError, "seed must be greater than or equal to 0, got -1"),
        ({"acumulate": 2}, ConfigError, "unknown setting 'acumulate'. Did you mean 'accumulate'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_can(settings: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(**settings)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda tr: tr.add_model("resnet"), r"a model must be a torch.nn.Module, got str"),
        (lambda tr: tr.add_optimizer(0.1), r"an optimizer must be a torch.optim.Optimizer, got float"),
        (lambda tr: tr.backward(torch.zeros(3)), r"the loss must be a scalar tensor, got a tensor of shape \(3,\)"),
        (lambda tr: tr.step(), r"needs an optimizer, because this run has 0"),
        (lambda tr: tr.step(torch.optim.SGD([torch.zeros(1)])), r"was not added. Call add_optimizer"),
        (lambda tr: tr.add_loader(7), r"must be iterable, got int"),
    ],
)
def test_a_mistake_in_a_loop_is_named(body: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trek.run(body, workers=1, show_progress=False)


def test_what_is_not_a_function_cannot_run() -> None:
    with pytest.raises(InputError, match="train_fn must be a function that takes a Traveler, got str"):
        trek.run("train")  # type: ignore[arg-type]


def test_without_a_gpu_one_process_is_the_default_and_what_the_loop_returns_comes_back() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert trek.run(lambda tr, a, b: (tr.world.size, a, b), 2, 3) == (1, 2, 3)


def test_a_world_of_another_size_than_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = trek.World(rank=0, size=2, local_size=2)
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="3 workers were asked for, but this process is one of 2"):
        run(workers=3)


# -- arguments


def parse(*command: str, defaults: dict[str, Any] | None = None) -> Namespace:
    parser = trek.arguments.add_learn_args(ArgumentParser(), defaults)
    return trek.arguments.add_run_args(trek.arguments.add_ddp_args(parser)).parse_args(command)


def test_the_four_ways_to_set_an_argument() -> None:
    assert parse().lr == 1e-3
    assert parse("--learning_rate", "1.5e-6").lr == parse("--lr", "1.5e-6").lr == 1.5e-6
    assert parse(defaults={"learning_rate": 1.5e-6}).lr == parse(defaults={"lr": 1.5e-6}).lr == 1.5e-6
    assert parse("--lr", "2", defaults={"lr": 1.0}).lr == 2
    args = parse()
    args.lr = 1.5e-6
    assert args.lr == 1.5e-6


def test_arguments_become_settings_of_a_run() -> None:
    args = parse("--precision", "bf16", "--gpus", "2", "--no-progress", "--find_unused_parameters", "--name", "x")
    made = trek.arguments.settings(args)
    own = {"precision": "bf16", "workers": 2, "name": "x", "show_progress": False}
    assert made.pop("strategy_options") == {"find_unused_parameters": True}
    assert {name: made[name] for name in own} == own
    defaults = TrainSettings()
    assert all(made[name] == getattr(defaults, name) for name in made.keys() - own.keys() - {"resume"})
    chosen = trek.arguments.settings(parse("--no-progress", "--workers", "1", "--seed", "7"))
    assert trek.run(lambda tr: tr.seed, **chosen) == 7


def test_a_default_for_an_argument_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="unknown argument learning_speed in defaults"):
        parse(defaults={"learning_speed": 1})


def test_no_epochs_are_no_epochs_and_a_loop_that_is_left_early_may_begin_again() -> None:
    def leave(tr: trek.Traveler) -> list[int]:
        seen = list(tr.epochs(0))
        for epoch in tr.epochs(5):
            seen.append(epoch)
            break
        return [*seen, *tr.epochs(2)]

    assert trek.run(leave, workers=1, show_progress=False) == [0, 0, 1]


def test_a_setting_that_a_loop_cannot_follow_is_refused() -> None:
    with pytest.raises(ConfigError, match="capture works for Trials only"):
        run(capture=True)
    with pytest.raises(ConfigError, match="engine 'mars' does not exist"):
        run(engine="mars")
