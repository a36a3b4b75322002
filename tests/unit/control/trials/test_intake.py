"""What trials leave behind is taken in whatever they wrote, in bounded parts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, func, select

from trek.client.models import MetricPoint, Report
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.metrics.metric_blocks import points_to_show
from trek.control.store import Store
from trek.control.tables import ExperimentRow, LogTable, MetricBlockTable, MetricTable, TrialRow
from trek.control.trials.ingest import take_report
from trek.control.trials.log_intake import LogIntake
from trek.control.trials.spool_intake import SpoolIntake
from trek.engines import LogLine
from trek.engines.log_file import split_lines
from trek.engines.member_folder import MemberFolder
from trek.experiments.config import ExperimentConfig
from trek.experiments.log_patterns import LogPatterns
from trek.experiments.spool import SPOOL
from trek.system.clock import SystemClock
from trek.testing.control_parts import open_store

CONFIG = ExperimentConfig.parse(
    {"entrypoint": "a:B", "searcher": {"name": "single", "metric": "m", "max_length": 1}}
).normal_form()


class GangDouble:
    """A gang of one that left these files."""

    num_workers = 1

    def __init__(self, *, spool: bytes = b"", log: bytes = b"") -> None:
        self._spool = spool
        self._log = log

    def read_file(self, name: str, *, rank: int, start: int = 0, size: int | None = None) -> bytes | None:
        assert (name, rank) == (SPOOL, 0)
        assert size is not None
        return self._spool[start : start + size]

    def read_log(self, rank: int, position: int = 0) -> list[LogLine]:
        start = position if position >= 0 else max(len(self._log) + position, 0)
        end = start + 4096 if position >= 0 else len(self._log)
        return list(split_lines(self._log[start:end], start, is_all=end >= len(self._log)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    row = {"key": 0, "hparams": {}, "seed": 0, "length": 1, "created_s": 1.0}
    with made.writing() as session:
        session.add(ExperimentRow(id=1, name="x", state="running", config=CONFIG, archive="", created_s=1.0))
        session.flush()
        session.add(TrialRow(id=1, experiment_id=1, state="running", run=1, **row))
    yield made
    made.close()


def point(batches: int) -> MetricPoint:
    return MetricPoint(group="training", batches=batches, metrics={"loss": 1.0 / (batches + 1)}, time_s=1.0)


def spooled(batches: range) -> bytes:
    reports = [Report(run=1, metrics=[point(number)]) for number in batches]
    return b"".join(report.model_dump_json(exclude_defaults=True).encode() + b"\n" for report in reports)


def take_spool(store: Store, data: bytes) -> int:
    """Take a spool in; the number of parts."""
    gang: Any = GangDouble(spool=data)
    storage = TrialStorage(root="/storage", inner="1")
    intake = SpoolIntake(store, gang, trial_id=1, run=1, storage=storage, clock=SystemClock())
    parts = 0
    while not intake.is_done:
        intake.take_part()
        parts += 1
    return parts


def count(store: Store, table: type[Any]) -> int:
    with store.reading() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_rows_that_were_delivered_before_are_summarised_once(store: Store) -> None:
    """Each row of a spool deleted and rebuilt all blocks after it: 4,000 rows took 299 s in one transaction."""
    take_spool(store, spooled(range(10_000)))
    expected, made = count(store, MetricBlockTable), [0]
    with store.reading() as session:
        shown = points_to_show(session, 1, "training", max_points=100)

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        made[0] += len(parameters) if many and statement.startswith("INSERT INTO metric_blocks") else 0

    event.listen(store._engine, "after_cursor_execute", note)
    parts = take_spool(store, spooled(range(10_000)))
    assert parts > 3, "in bounded transactions"
    assert made[0] <= 2 * expected
    assert (count(store, MetricTable), count(store, MetricBlockTable)) == (10_000, expected)
    with store.reading() as session:
        assert points_to_show(session, 1, "training", max_points=100) == shown


def test_a_run_that_reports_again_from_its_checkpoint_summarises_each_row_once(store: Store) -> None:
    """Every report of a restarted run rebuilt the blocks of all rows that the run before it had reported."""
    take_spool(store, spooled(range(8000)))
    made = [0]

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        made[0] += len(parameters) if many and statement.startswith("INSERT INTO metric_blocks") else 0

    event.listen(store._engine, "after_cursor_execute", note)
    for start in range(1000, 8000, 100):
        report = Report(run=1, metrics=[point(number) for number in range(start, start + 100)])
        with store.writing() as session:
            take_report(session, session.get_one(TrialRow, 1), report, now_s=1.0)
    assert made[0] < 8000 / 64 * 1.5


_numbers = st.integers() | st.floats() | st.none() | st.booleans() | st.text(max_size=3)
_documents = st.fixed_dictionaries(
    {
        "run": st.just(1),
        "metrics": st.lists(
            st.fixed_dictionaries(
                {
                    "group": st.text(max_size=120) | st.just("validation"),
                    "batches": _numbers,
                    "metrics": st.dictionaries(st.text(max_size=3), _numbers, max_size=2),
                    "time_s": _numbers,
                }
            ),
            max_size=3,
        ),
        "progress": _numbers,
        "deleted_checkpoints": st.lists(st.text(max_size=3), max_size=2),
    }
)
_lines = st.binary(max_size=40) | _documents.map(lambda one: json.dumps(one).encode())


@given(st.lists(_lines, max_size=6), st.binary(max_size=30))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_spool_is_taken_in_to_its_end(store: Store, lines: list[bytes], end: bytes) -> None:
    """One report that the database refused kept its trial from ending for ever."""
    good = Report(run=1, metrics=[point(77)]).model_dump_json().encode()
    take_spool(store, b"\n".join([*lines, good, end]))
    with store.reading() as session:
        assert session.get(MetricTable, (1, "training", 77)) is not None
        assert all(row.batches >= 0 for row in session.scalars(select(MetricTable)))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_metric_that_is_not_finite_is_none_however_it_is_written(text: str) -> None:
    document = f'{{"run": 1, "metrics": [{{"group": "g", "batches": 1, "metrics": {{"m": {text}}}, "time_s": 1}}]}}'
    assert Report.model_validate_json(document).metrics[0].metrics == {"m": None}


def test_nested_json_is_not_a_report(store: Store) -> None:
    take_spool(store, b"[" * 100_000 + b"\n" + spooled(range(3)))
    assert count(store, MetricTable) == 3


def take_log(store: Store, log: bytes, *, max_bytes: int, patterns: list[str] | None = None) -> list[str]:
    gang: Any = GangDouble(log=log)
    intake = LogIntake(
        store,
        gang,
        trial_id=1,
        positions=[0],
        cancel_patterns=LogPatterns(patterns or []),
        clock=SystemClock(),
        max_bytes=max_bytes,
        used_bytes=0,
    )
    rounds = 0
    while intake.take_part(is_over=True):
        rounds += 1
        assert rounds < 1000
    with store.reading() as session:
        return [row.text for row in session.scalars(select(LogTable).order_by(LogTable.position))]


def test_a_log_over_the_limit_keeps_its_beginning_and_its_end(store: Store) -> None:
    """A trial that printed 6.7 GB took the control plane to 16.5 GB, and all of it was stored."""
    log = b"".join(b"line %d\n" % number for number in range(100_000)) + b"ValueError: the cause\n"
    texts = take_log(store, log, max_bytes=100_000, patterns=["the cause"])
    assert texts[:2] == ["line 0", "line 1"]
    assert texts[-1] == "ValueError: the cause"
    assert sum("more than 0.0953674 MiB of log" in text for text in texts) == 1
    assert sum("bytes of the log were left out here" in text for text in texts) == 1
    assert sum(map(len, texts)) < 2 * 100_000
    with store.reading() as session:
        assert session.get_one(TrialRow, 1).retries_cancelled == "ValueError: the cause"


def test_a_log_within_the_limit_is_stored_whole(store: Store) -> None:
    log = b"".join(b"line %d\n" % number for number in range(3000))
    assert take_log(store, log, max_bytes=1 << 20) == [f"line {number}" for number in range(3000)]


@given(st.binary(max_size=3000), st.integers(50, 4000))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_log(store: Store, log: bytes, max_bytes: int) -> None:
    with store.writing() as session:
        session.query(LogTable).delete()
        session.get_one(TrialRow, 1).log_bytes = 0
    take_log(store, log, max_bytes=max_bytes)


def test_what_a_member_puts_in_its_folder_cannot_lead_its_watcher_elsewhere(tmp_path: Path) -> None:
    """A link in a member's folder was followed, and a pipe would have been waited for."""
    folder = MemberFolder(tmp_path / "member")
    folder.path.mkdir()
    (tmp_path / "secret").write_text("of somebody else")
    (folder.path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder.path / "pipe")
    (folder.path / "asked").symlink_to(tmp_path / "made")
    assert (folder.read("link"), folder.read("pipe"), folder.read("none")) == (None, None, None)
    folder.ask()
    assert not (tmp_path / "made").exists()
    folder.write("file", b"0123456789")
    assert (folder.read("file"), folder.read("file", start=3, size=4)) == (b"0123456789", b"3456")
