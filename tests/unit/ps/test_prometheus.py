"""The figures of a server as a scraper of Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from trek.errors import PortInUse
from trek.ps.figures import Latencies
from trek.ps.prometheus import MetricsServer, to_text


def figures() -> dict[str, object]:
    latencies = Latencies()
    for seconds in (0.0009, 0.001, 0.003, 2.0):
        latencies.add("push_gradient", seconds)
    return {
        "version": 7,
        "dense": {"parameters": 1, "bytes": 24},
        "tables": {'a "table"': {"rows": 3, "bytes": 100, "spilled": 1, "evicted": 0}},
        "staleness": {"0": 5, "2": 1},
        "rejected": 2,
        "requests": latencies.summary(),
    }


def test_requests_have_a_histogram_of_their_times() -> None:
    summary = figures()["requests"]
    assert isinstance(summary, dict)
    assert summary["push_gradient"]["histogram"] == {"1.024": 2, "4.096": 1, "2097.152": 1}
    lines = to_text(figures()).splitlines()
    assert "# TYPE trek_ps_request_seconds histogram" in lines
    counts = [line.split()[-1] for line in lines if line.startswith("trek_ps_request_seconds_bucket")]
    assert counts == ["2", "3", "4", "4"]
    assert 'trek_ps_request_seconds_bucket{request="push_gradient",le="0.001024"} 2' in lines
    assert 'trek_ps_request_seconds_count{request="push_gradient"} 4' in lines


def test_tables_versions_and_staleness_are_told() -> None:
    lines = to_text(figures()).splitlines()
    assert "trek_ps_version 7" in lines
    assert "trek_ps_rejected_pushes 2" in lines
    assert 'trek_ps_table_rows{table="a \\"table\\""} 3' in lines
    assert 'trek_ps_pushes_by_staleness{versions="2"} 1' in lines


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    served = MetricsServer(figures, host="127.0.0.1", port=0)
    yield served
    served.close()


def test_they_are_given_out_at_metrics(server: MetricsServer) -> None:
    address = f"http://127.0.0.1:{server.port}"
    with urlopen(f"{address}/metrics") as answer:
        assert answer.read().decode() == to_text(figures())
    with pytest.raises(HTTPError, match="404") as refused:
        urlopen(address)
    refused.value.close()
    with pytest.raises(PortInUse, match="Choose another"):
        MetricsServer(figures, host="127.0.0.1", port=server.port)
