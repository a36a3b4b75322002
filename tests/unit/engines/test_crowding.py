"""More workers than cores: one line, wherever they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trek.cli import launch
from trek.cli.main import trek
from trek.engines.crowding import describe_crowding
from trek.engines.local import LocalEngine
from trek.train.jobs import elastic_job
from trek.train.workers import WorkerRange

LINE = "trek: warning: 64 workers share 2 CPU cores: more than that seldom train faster.\n"


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalEngine, "slots", lambda self: 2)
    monkeypatch.setattr(LocalEngine, "num_gpus", lambda self: 0)


def _train(workers: Any) -> Callable[[pytest.MonkeyPatch], None]:
    def train(monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("run_job", "run_elastic_job"):
            monkeypatch.setattr(elastic_job, name, lambda *args, **settings: None)
        elastic_job.run_anywhere(lambda world: None, origin=None, workers=workers, engine=LocalEngine())

    return train


def _launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_run", lambda engine, spec: 0)
    trek.main(["launch", "--workers", "64", "--no-python", "true"], standalone_mode=False)


@pytest.mark.parametrize("start", [_train(64), _train(WorkerRange(64, 65)), _launch], ids=["fit", "elastic", "launch"])
def test_more_workers_than_cores_are_reported(
    start: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    start(monkeypatch)
    assert capfd.readouterr().err == LINE


@pytest.mark.parametrize("start", [_train(2), _train(WorkerRange(1, 64))], ids=["fixed", "elastic"])
def test_a_worker_for_each_core_is_not_reported(
    start: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    start(monkeypatch)
    assert capfd.readouterr().err == ""


def test_gpus_are_not_cores(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(LocalEngine, "num_gpus", lambda self: 2)
    _train(64)(monkeypatch)
    assert capfd.readouterr().err == ""
    assert describe_crowding(2, slots=2) == ""
