"""Reports leave the training thread at once, arrive however late, and tell the trial to stop."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from trek.client.models import Report, ReportReply
from trek.errors import InputError, MasterUnreachable, RunEnded
from trek.experiments.reporting import ControlPlaneLogger
from trek.experiments.spool import SPOOL, parse_spool
from trek.train.loggers.base import CheckpointRow, MetricRow
from trek.train.loop.stopping import StopRequest


class ControlPlaneDouble:
    """Takes reports in, unless it is told to be away or to refuse."""

    def __init__(self, *, is_away: bool = False, stop: str = "") -> None:
        self.is_away = is_away
        self.is_refusing = False
        self.reports: list[Report] = []
        self.arrived = threading.Event()
        self._stop = stop

    def __call__(self, report: Report) -> ReportReply:
        if self.is_away:
            raise MasterUnreachable("nobody is there")
        if self.is_refusing:
            raise InputError("no")
        self.reports.append(report)
        self.arrived.set()
        return ReportReply(stop=self._stop)  # type: ignore[arg-type]

    @property
    def batches(self) -> list[int]:
        return [point.batches for report in self.reports for point in report.metrics]


def row(batches: int, loss: float = 0.5) -> MetricRow:
    return MetricRow(group="training", batches=batches, epoch=0.0, metrics={"loss": loss}, time_s=1.0)


def logger(send: ControlPlaneDouble, folder: Path, *, stop: StopRequest | None = None) -> ControlPlaneLogger:
    return ControlPlaneLogger(send, run=3, folder=folder, stop=stop or StopRequest(), poll_s=0.02, drain_s=0.3)


def test_everything_logged_arrives_in_order(tmp_path: Path) -> None:
    plane = ControlPlaneDouble()
    with logger(plane, tmp_path) as reporting:
        for batches in range(5000):
            reporting.log_metrics(row(batches))
    assert plane.batches == list(range(5000))
    assert len(plane.reports) < 500, "rows travel together"


def test_logging_does_not_wait_for_a_control_plane_that_is_away(tmp_path: Path) -> None:
    plane = ControlPlaneDouble(is_away=True)
    with logger(plane, tmp_path) as reporting:
        for batches in range(1000):
            reporting.log_metrics(row(batches))
        plane.is_away = False  # whoever waits never gets here
    assert plane.batches == list(range(1000))


def test_a_trial_of_a_search_hears_at_its_validation_whether_it_goes_on(tmp_path: Path) -> None:
    plane, stop = ControlPlaneDouble(stop="searcher"), StopRequest()
    reporting = ControlPlaneLogger(plane, run=3, folder=tmp_path, stop=stop, awaits_decisions=True, poll_s=30.0)
    with reporting:
        reporting.log_metrics(replace(row(7), group="validation"))
        assert stop.reason == "searcher"


def test_a_search_whose_control_plane_is_away_goes_on_training(tmp_path: Path) -> None:
    plane, stop = ControlPlaneDouble(is_away=True), StopRequest()
    reporting = ControlPlaneLogger(plane, run=3, folder=tmp_path, stop=stop, awaits_decisions=True, drain_s=0.1)
    with reporting:
        for batches in range(20):  # would take 40 s if each were waited for
            reporting.log_metrics(replace(row(batches), group="validation"))
    assert not stop.is_set
    assert len(parse_spool((tmp_path / SPOOL).read_bytes(), run=3)) == 20


def test_what_cannot_be_delivered_is_spooled(tmp_path: Path) -> None:
    plane = ControlPlaneDouble(is_away=True)
    with logger(plane, tmp_path) as reporting:
        reporting.log_metrics(row(1))
        reporting.log_checkpoint(CheckpointRow("u", 1, "/u", 5, {}, 1.0))
        reporting.log_progress(0.5)
    spooled = parse_spool((tmp_path / SPOOL).read_bytes(), run=3)
    assert [p.batches for report in spooled for p in report.metrics] == [1]
    assert [c.uuid for report in spooled for c in report.checkpoints] == ["u"]
    assert parse_spool((tmp_path / SPOOL).read_bytes(), run=4) == []


def test_a_refused_report_is_spooled_too(tmp_path: Path) -> None:
    plane = ControlPlaneDouble()
    plane.is_refusing = True
    with logger(plane, tmp_path) as reporting:
        reporting.log_metrics(row(1))
    assert len(parse_spool((tmp_path / SPOOL).read_bytes(), run=3)) == 1


def test_a_row_is_on_disk_before_the_call_that_logs_it_returns(tmp_path: Path) -> None:
    plane = ControlPlaneDouble(is_away=True)
    with logger(plane, tmp_path) as reporting:
        reporting.log_metrics(row(1))
        assert len(parse_spool((tmp_path / SPOOL).read_bytes(), run=3)) == 1
        plane.is_away = False


def test_what_was_delivered_leaves_the_spool(tmp_path: Path) -> None:
    plane = ControlPlaneDouble()
    with logger(plane, tmp_path) as reporting:
        reporting.log_metrics(row(1))
    assert plane.batches == [1]
    assert parse_spool((tmp_path / SPOOL).read_bytes(), run=3) == []


def test_a_trial_learns_that_it_shall_stop_without_reporting_anything(tmp_path: Path) -> None:
    stop = StopRequest()
    plane = ControlPlaneDouble(stop="searcher")
    with logger(plane, tmp_path, stop=stop):
        assert plane.arrived.wait(10)
    assert (stop.is_set, stop.reason) == (True, "searcher")


def test_values_that_are_no_numbers_travel_as_none(tmp_path: Path) -> None:
    plane = ControlPlaneDouble()
    with logger(plane, tmp_path) as reporting:
        reporting.log_metrics(row(1, loss=float("nan")))
    assert plane.reports[0].metrics[0].metrics == {"loss": None}


def test_a_run_that_was_replaced_stops(tmp_path: Path) -> None:
    """A refusal only made a warning, so a replaced run would have trained to its end."""

    def refuse(report: Report) -> ReportReply:
        raise RunEnded("run 3 was replaced")

    stop = StopRequest()
    with ControlPlaneLogger(refuse, run=3, folder=tmp_path, stop=stop, poll_s=0.02, drain_s=0.3) as reporting:
        reporting.log_metrics(row(1))
    assert (stop.is_set, stop.reason) == (True, "killed")
