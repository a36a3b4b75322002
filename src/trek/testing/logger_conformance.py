"""What every Logger must do, as tests: subclass `LoggerConformance` and give it a fixture named `make_logger`.

class TestMyLogger(LoggerConformance):
    @pytest.fixture
    def make_logger(self, tmp_path: Path) -> Callable[[], Logger]:
        return lambda: MyLogger(tmp_path)

    def recorded(self, folder: Path) -> list[Recorded]:    # where what was written can be read back
        return [(row.group, row.batches, row.name, row.value) for row in my_reader(folder)]
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, get_args

import pytest

from trek.train.loggers.base import ArtifactRow, CheckpointRow, EndState, JobIdentity, Logger, MetricRow

Recorded = tuple[str, int, str, float]
"""Group, batches, name of a metric, its value."""


class LoggerConformance:
    """The contract of `trek.train.loggers.base`, one promise a test."""

    @pytest.fixture
    def make_logger(self, tmp_path: Path) -> Callable[[], Logger]:
        """Override: a function that makes a Logger, always of the same run; its files, if any, are under `tmp_path`."""
        raise NotImplementedError

    def recorded(self, folder: Path) -> list[Recorded] | None:
        """Override: every metric as a reader of the destination sees it, in any order; None if it cannot be read."""
        return None

    def spelled(self, name: str) -> str:
        """Override: how the destination spells a name of a metric that has spaces, brackets or percent signs."""
        return name

    def ended(self, folder: Path) -> str | None:
        """Override: the state that was recorded as the run's end; None if the destination has no such thing."""
        return None

    states: ClassVar[dict[EndState, str]] = {}
    """Override with `ended`: how the destination calls the states."""

    def test_everything_that_is_logged_is_recorded_once_the_logger_is_closed(
        self, make_logger: Callable[[], Logger], tmp_path: Path
    ) -> None:
        """Metrics of several groups, new names on the way, names of any text."""
        rows = [
            _row("training", 1, loss=0.5),
            _row("training", 2, loss=0.25, accuracy=0.75),
            _row("validation", 2, loss=0.125),
            _row("test/clean set", 2, **{"top-1 (%)": 99.5}),
            _row("training", 3, accuracy=0.875),
        ]
        _run(make_logger(), rows)
        self._compare(rows, tmp_path)

    def test_a_resumed_run_goes_on_where_it_was(self, make_logger: Callable[[], Logger], tmp_path: Path) -> None:
        """A new logger in the same place adds to what is there."""
        rows = [_row("training", batches, loss=1 / batches) for batches in (1, 2, 4)]
        _run(make_logger(), rows[:2])
        _run(make_logger(), rows[2:])
        self._compare(rows, tmp_path)

    def test_rows_reported_again_after_a_resume_are_recorded_once(
        self, make_logger: Callable[[], Logger], tmp_path: Path
    ) -> None:
        """A run resumes from its last checkpoint, and reports again what came after it."""
        rows = [_row("training", batches, loss=2.0**-batches) for batches in (1, 2, 3, 4)]
        _run(make_logger(), rows[:3])
        _run(make_logger(), rows[1:])
        self._compare(rows, tmp_path)

    @pytest.mark.parametrize("state", get_args(EndState))
    def test_the_end_of_a_run_is_recorded(
        self, make_logger: Callable[[], Logger], tmp_path: Path, state: EndState
    ) -> None:
        """By destinations that know of it; the others ignore it."""
        _run(make_logger(), [_row("training", 1, loss=0.5)], state=state)
        assert self.ended(tmp_path) == self.states.get(state)

    def test_a_run_that_failed_goes_on_when_it_is_resumed(
        self, make_logger: Callable[[], Logger], tmp_path: Path
    ) -> None:
        """And then ends as any other."""
        rows = [_row("training", batches, loss=1 / batches) for batches in (1, 2)]
        _run(make_logger(), rows[:1], state="failed")
        _run(make_logger(), rows[1:], state="completed")
        self._compare(rows, tmp_path)
        assert self.ended(tmp_path) == self.states.get("completed")

    def test_artifacts_may_be_logged(self, make_logger: Callable[[], Logger], tmp_path: Path) -> None:
        """Whether or not the logger records them; the same name again replaces a file."""
        logger = make_logger()
        _start(logger)
        path = tmp_path / "stored"
        for text in ("one", "two"):
            path.write_text(text)
            logger.log_artifact(ArtifactRow("plots/a.txt", str(path), num_bytes=3, batches=1, time_s=1e9))
        logger.close()

    def test_values_that_are_no_numbers_do_no_harm(self, make_logger: Callable[[], Logger]) -> None:
        """A loss may diverge; the run is not stopped by its logger."""
        _run(make_logger(), [_row("training", 1, loss=math.nan), _row("training", 2, loss=math.inf)])

    def test_hyperparameters_may_be_of_any_type(self, make_logger: Callable[[], Logger]) -> None:
        """Nested ones, None, objects."""
        logger = make_logger()
        logger.identify(JobIdentity(key="odd", name="a run/with: odd characters"))
        logger.start(name="a run/with: odd characters", hparams={"lr": 0.1, "net": {"units": [1, 2]}, "x": None})
        logger.close()

    def test_progress_and_checkpoints_may_be_logged(self, make_logger: Callable[[], Logger]) -> None:
        """Whether or not the logger records them."""
        logger = make_logger()
        _start(logger)
        logger.log_progress(0.5)
        logger.log_checkpoint(
            CheckpointRow(uuid="u", batches=1, path="s3://b/c", num_bytes=9, metrics={}, time_s=1e9),
        )
        logger.log_checkpoint_deleted("u")
        logger.close()

    def test_it_may_be_closed_twice_and_without_being_started(self, make_logger: Callable[[], Logger]) -> None:
        """A run may fail before it begins."""
        make_logger().close()
        logger = make_logger()
        _start(logger)
        logger.close()
        logger.close()

    def test_closing_ends_its_threads(self, make_logger: Callable[[], Logger]) -> None:
        """Nothing is left running."""
        before = set(threading.enumerate())
        _run(make_logger(), [_row("training", 1, loss=0.5)])
        assert set(threading.enumerate()) <= before

    def _compare(self, rows: list[MetricRow], folder: Path) -> None:
        found = self.recorded(folder)
        expected = [
            (row.group, row.batches, self.spelled(name), value) for row in rows for name, value in row.metrics.items()
        ]
        assert found is None or sorted(found) == sorted(expected)


def _row(group: str, batches: int, **metrics: float) -> MetricRow:
    return MetricRow(group=group, batches=batches, epoch=batches / 4, metrics=metrics, time_s=1e9 + batches)


def _start(logger: Logger) -> None:
    logger.identify(JobIdentity(key="job", name="run"))
    logger.start(name="run", hparams={"lr": 0.1})


def _run(logger: Logger, rows: list[MetricRow], *, state: EndState = "completed") -> None:
    _start(logger)
    for row in rows:
        logger.log_metrics(row)
    logger.end(state)
    logger.close()
