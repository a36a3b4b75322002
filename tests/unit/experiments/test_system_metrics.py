"""System metrics: figures from two measurements, reported on a thread that no error ends."""

from __future__ import annotations

import threading
from dataclasses import replace

from trek.client.models import Report
from trek.errors import MasterUnreachable
from trek.experiments.system_metrics import GROUP, SystemReporter, Usage, measure, rates

START = Usage(100.0, cpu_s=5.0, memory_bytes=10, disk_read=0, disk_written=0, network_received=0, network_sent=0)


def test_figures_are_rates_over_the_time_between() -> None:
    now = replace(START, time_s=104.0, cpu_s=11.0, memory_bytes=20, disk_read=400, network_sent=40)
    found = rates(START, now)
    assert found["cpu_percent"] == 150.0
    assert found["memory_bytes"] == 20
    assert found["disk_read_bytes_per_s"] == 100
    assert found["network_sent_bytes_per_s"] == 10


def test_waiting_for_data_is_a_share_of_the_time_between() -> None:
    before, now = replace(START, waited_s=1.0), replace(START, time_s=104.0, waited_s=2.0)
    assert rates(before, now)["data_wait_percent"] == 25.0
    assert rates(before, replace(now, waited_s=90.0))["data_wait_percent"] == 100.0, "clocks differ a little"
    assert "data_wait_percent" not in rates(START, replace(START, time_s=104.0)), "not known"


def test_a_child_that_ended_makes_no_negative_figures() -> None:
    assert min(rates(START, replace(START, time_s=101.0, cpu_s=1.0, memory_bytes=0)).values()) == 0


def test_this_process_can_be_measured() -> None:
    found = measure()
    assert found.memory_bytes > 2**20
    assert found.cpu_s > 0


def test_reports_go_on_after_one_that_failed() -> None:
    sent: list[Report] = []
    has_two = threading.Event()

    def send(report: Report) -> None:
        sent.append(report)
        if len(sent) == 1:
            raise MasterUnreachable("gone")
        has_two.set()

    times = iter(range(100, 10_000))
    with SystemReporter(
        send, run=3, rank=1, period_s=0.001, first_s=0.001,
        take=lambda: replace(START, time_s=float(next(times))), gpu=lambda: {"gpu_percent": 7.0},
        waited_s=lambda: 0.0,
    ):  # fmt: skip
        assert has_two.wait(30)
    [point] = sent[1].metrics
    assert sent[1].run == 3
    assert point.group == f"{GROUP}1"
    assert point.batches == int(point.time_s)
    assert point.metrics["gpu_percent"] == 7.0
    assert point.metrics["data_wait_percent"] == 0.0
