"""A logger in a process of its own: whatever its destination does, training goes on, and what is lost is told once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from torch import nn

import trek
from trek.errors import InputError
from trek.testing.logger_conformance import LoggerConformance, Recorded
from trek.testing.recorders import CrashingLogger, FileLogger, FileRecorder
from trek.testing.trials import PointsTrial
from trek.train.loggers import EndState, Logger, MetricRow


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def row(batches: int, **metrics: float) -> MetricRow:
    return MetricRow("training", batches, 0.0, metrics or {"loss": 1.0}, time_s=1e9)


class TestRecorder(LoggerConformance):
    """A Recorder is a whole Logger."""

    states: ClassVar[dict[EndState, str]] = {
        "completed": "completed",
        "failed": "failed",
        "killed": "killed",
        "paused": "paused",
    }

    @pytest.fixture
    def make_logger(self, tmp_path: Path) -> Callable[[], Logger]:
        return lambda: FileRecorder(path=str(tmp_path / "out"))

    def recorded(self, folder: Path) -> list[Recorded]:
        rows = [line for line in lines(folder / "out") if line[0] not in ("start", "end")]
        found = {(group, batches, name): value for group, batches, own in rows for name, value in own.items()}
        return [(*key, value) for key, value in found.items()]

    def ended(self, folder: Path) -> str | None:
        return next((line[1] for line in reversed(lines(folder / "out")) if line[0] == "end"), None)


def test_a_destination_that_fails_for_a_while_gets_everything_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logger = FileLogger(path=str(tmp_path / "out"), num_failures=3)
    logger.start(name="run", hparams={"lr": 0.1, "model": object})
    metrics = {"loss": 0.5}
    for batches in range(5000):
        logger.log_metrics(row(batches, **metrics))
    metrics["loss"] = 7.0  # the caller's own: what was logged does not change
    logger.end("completed")
    logger.close()
    logger.close()
    first, *rows, last = lines(tmp_path / "out")
    assert first[:2] == ["start", "run"]
    assert rows == [["training", batches, {"loss": 0.5}] for batches in range(5000)]
    assert last == ["end", "completed"]
    assert "not recorded" not in capfd.readouterr().err


def test_a_destination_that_hangs_fills_the_buffer_and_what_is_lost_is_told_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hang = tmp_path / "hang"
    hang.touch()
    text = "x" * 1000  # so that the pipe is full soon
    logger = FileLogger(path=str(tmp_path / "out"), hang=str(hang), max_rows=100, drain_s=0.5)
    logger.start(name="run", hparams={})
    for batches in range(3000):
        logger.log_metrics(row(batches, **{text: 1.0}))
    logger.close()
    told = capfd.readouterr().err
    assert "3001 of 3001 reports to the file were not recorded: it did not answer in time" in told
    assert told.count("not recorded") == 1


def test_a_child_that_cannot_start_is_told_of_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    logger = CrashingLogger()
    logger.start(name="run", hparams={})
    logger.close()
    assert "1 of 1 reports to nowhere were not recorded: AttributeError:" in capfd.readouterr().err


class Failing(PointsTrial):
    """Fails in its second epoch."""

    def train_batch(self, batch: Any, model: Any, batch_idx: int) -> Any:
        if self.context.traveler.position.epoch == 1:
            raise InputError("enough")
        return super().train_batch(batch, model, batch_idx)


@pytest.mark.parametrize(("trial", "state"), [(PointsTrial, "completed"), (Failing, "failed")])
def test_a_run_says_how_it_ended(trial: type[trek.Trial], state: str) -> None:
    said: list[Any] = []

    class Listener(Logger):
        def identify(self, job: Any) -> None:
            said.append(job.key)

        def end(self, state: EndState) -> None:
            said.append(state)

        def close(self) -> None:
            said.append("close")

    for resume in (None, "latest"):
        try:
            trek.fit(
                trial,
                hparams={"global_batch_size": 16},
                max_length=trek.epochs(2),
                checkpoint_period=trek.epochs(1),
                loggers=[Listener()],
                name="told",
                resume=resume,
                show_progress=False,
            )
        except InputError:
            assert state == "failed"
    first, *_ = said
    assert said == [first, state, "close"] * 2  # the resumed run is the same job


class Identified(Logger):
    """Keeps the job that each run belongs to."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def identify(self, job: Any) -> None:
        self.keys.append(job.key)


def test_a_run_resumed_from_a_folder_of_its_own_checkpoints_is_the_same_job(tmp_path: Path) -> None:
    logger = Identified()
    for epochs, resume in ((1, None), (2, "latest"), (3, "latest"), (1, None), (4, "latest")):
        trek.fit(
            PointsTrial,
            hparams={"global_batch_size": 16},
            max_length=trek.epochs(epochs),
            checkpoint_dir=tmp_path / ("first" if resume or epochs > 1 or not logger.keys else "other"),
            loggers=[logger],
            name="kept elsewhere",
            resume=resume,
            show_progress=False,
        )
    first, *resumed = logger.keys
    assert resumed[:2] == [first, first]
    assert resumed[2] != first  # another job of the same name came between
    assert resumed[3] == first


def test_a_loop_without_a_folder_is_the_same_job_when_it_is_resumed(tmp_path: Path) -> None:
    logger = Identified()
    for resume in (None, "latest", None):
        with trek.Traveler(checkpoint_dir=tmp_path, loggers=[logger]) as traveler:
            traveler.add_model(nn.Linear(1, 1))
            traveler.restore(resume)
            traveler.journal.begin(name="loop", hparams={})
            traveler.save()
    first, resumed, new = logger.keys
    assert first == resumed != new
