"""Every logger keeps the contract, can be asked for by name, and may come from another package."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from trek.errors import ConfigError
from trek.testing.logger_conformance import LoggerConformance, Recorded
from trek.testing.plugins import plugin_package
from trek.train.loggers import LOGGERS, Logger, MetricRow, open_logger
from trek.train.loggers.jsonl import JSONLLogger, read_rows


class TestCSV(LoggerConformance):
    """A file for each group."""

    @pytest.fixture
    def make_logger(self, tmp_path: Path) -> Callable[[], Logger]:
        return lambda: open_logger("csv", folder=tmp_path)

    def recorded(self, folder: Path) -> list[Recorded]:
        return [cell for path in folder.glob("*.csv") for cell in cells(path)]


def cells(path: Path) -> list[Recorded]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        (unquote(path.stem), int(row["batches"]), name, float(value))
        for row in rows
        for name, value in row.items()
        if name not in ("batches", "epoch") and value
    ]


class TestJSONL(LoggerConformance):
    """A line for each row."""

    @pytest.fixture
    def make_logger(self, tmp_path: Path) -> Callable[[], Logger]:
        return lambda: open_logger("jsonl", folder=tmp_path)

    def recorded(self, folder: Path) -> list[Recorded]:
        rows = {(row["group"], row["batches"]): row for row in read_rows(folder / "metrics.jsonl")}.values()
        return [(row["group"], row["batches"], name, value) for row in rows for name, value in row["metrics"].items()]


class TestTensorBoard(LoggerConformance):
    """A curve for each metric."""

    @pytest.fixture
    def make_logger(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Logger]:
        # Files are read by name: of one process and one second, `….10` would come before `….9`.
        monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
        return lambda: open_logger("tensorboard", folder=tmp_path)

    def recorded(self, folder: Path) -> list[Recorded]:
        events = EventAccumulator(str(folder))
        events.Reload()
        tags = list(events.Tags()["scalars"])
        return [
            (tag.rpartition("/")[0], event.step, tag.rpartition("/")[2], event.value)
            for tag in tags
            for event in events.Scalars(tag)
        ]


class Forgetful(JSONLLogger):
    """Loses what was logged before a resume, and every second name."""

    def start(self, *, name: str, hparams: object) -> None:
        self._path.unlink(missing_ok=True)
        super().start(name=name, hparams={})

    def log_metrics(self, row: MetricRow) -> None:
        super().log_metrics(
            MetricRow(row.group, row.batches, row.epoch, dict(list(row.metrics.items())[:1]), row.time_s)
        )


@pytest.mark.parametrize(
    "test",
    [
        "test_everything_that_is_logged_is_recorded_once_the_logger_is_closed",
        "test_a_resumed_run_goes_on_where_it_was",
    ],
)
def test_a_logger_that_breaks_the_contract_fails_the_suite(test: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        getattr(TestJSONL(), test)(lambda: Forgetful(tmp_path / "metrics.jsonl"), tmp_path)


SOURCE = """
from trek.train.loggers import Logger


class PrintLogger(Logger):
    def __init__(self, prefix):
        self.prefix = prefix

    @classmethod
    def open(cls, folder, *, prefix=""):
        return cls(prefix)

    def log_metrics(self, row):
        print(f"{self.prefix}{row.group} {dict(row.metrics)}")
"""


def test_a_logger_of_another_package_is_opened_by_name_with_its_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = {"trek.loggers": {"print": "print_logger:PrintLogger"}}
    with plugin_package(tmp_path, module="print_logger", source=SOURCE, entry_points=points, refresh=LOGGERS):
        logger = open_logger("print", folder=tmp_path, prefix="> ")
        logger.log_metrics(MetricRow("training", 1, 0.0, {"loss": 0.5}, 0.0))
        assert capsys.readouterr().out == "> training {'loss': 0.5}\n"
        with pytest.raises(ConfigError, match=r"logger 'print' has no setting 'colour'\. It has: folder, prefix\."):
            open_logger("print", folder=tmp_path, colour="red")


def test_an_unknown_name_and_an_unknown_setting_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"logger 'tensorbord' does not exist\. Did you mean 'tensorboard'"):
        open_logger("tensorbord", folder=tmp_path)
    with pytest.raises(ConfigError, match=r"logger 'csv' has no setting 'path'\. It has: folder\."):
        open_logger("csv", folder=tmp_path, path="x")
