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

import pytest

from trek.train.loggers.base import CheckpointRow, Logger, MetricRow

Recorded = tuple[str, int, str, float]
"""Group, batches, name of a metric, its value."""


class LoggerConformance:
    """The contract of `trek.train.loggers.base`, one promise a test."""

    @pytest.fixture
    def make_logger(self, tmp_path: Path) -> Callable[[], Logger]:
        """Override: a function that makes a Logger, always of the same run; its files, if any, are under `tmp_path`."""
        raise NotImplementedError

    def recorded(self, folder: Path) -> list[Recorded] | None:
        """Override: every metric that was recorded, in order of groups and batches; None if it cannot be read."""
        return None

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

    def test_values_that_are_no_numbers_do_no_harm(self, make_logger: Callable[[], Logger]) -> None:
        """A loss may diverge; the run is not stopped by its logger."""
        _run(make_logger(), [_row("training", 1, loss=math.nan), _row("training", 2, loss=math.inf)])

    def test_hyperparameters_may_be_of_any_type(self, make_logger: Callable[[], Logger]) -> None:
        """Nested ones, None, objects."""
        logger = make_logger()
        logger.start(name="a run/with: odd characters", hparams={"lr": 0.1, "net": {"units": [1, 2]}, "x": None})
        logger.close()

    def test_progress_and_checkpoints_may_be_logged(self, make_logger: Callable[[], Logger]) -> None:
        """Whether or not the logger records them."""
        logger = make_logger()
        logger.start(name="run", hparams={})
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
        logger.start(name="run", hparams={})
        logger.close()
        logger.close()

    def test_closing_ends_its_threads(self, make_logger: Callable[[], Logger]) -> None:
        """Nothing is left running."""
        before = set(threading.enumerate())
        _run(make_logger(), [_row("training", 1, loss=0.5)])
        assert set(threading.enumerate()) <= before

    def _compare(self, rows: list[MetricRow], folder: Path) -> None:
        found = self.recorded(folder)
        expected = [(row.group, row.batches, name, value) for row in rows for name, value in row.metrics.items()]
        assert found is None or sorted(found) == sorted(expected)


def _row(group: str, batches: int, **metrics: float) -> MetricRow:
    return MetricRow(group=group, batches=batches, epoch=batches / 4, metrics=metrics, time_s=1e9 + batches)


def _run(logger: Logger, rows: list[MetricRow]) -> None:
    logger.start(name="run", hparams={"lr": 0.1})
    for row in rows:
        logger.log_metrics(row)
    logger.close()
