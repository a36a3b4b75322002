"""What logging a metric costs the thread that trains, beside MLflow's default store and its batches.

    python benchmarks/control/logged_metric.py --rows 2000

The peer is left out by name where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from pathlib import Path

from trek.client.models import Report, ReportReply
from trek.experiments.reporting import ControlPlaneLogger
from trek.train.loggers.base import MetricRow
from trek.train.stopping import StopRequest

SERVER_S = 0.01


def main() -> None:
    """Log rows one by one and print the milliseconds of a call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        ours = with_trek(Path(folder), rows) / rows
        print(f"trek, spooled to disk and sent behind: {ours * 1e3:.3f} ms a row")
        if importlib.util.find_spec("mlflow") is None:
            print("mlflow: not installed, left out")
            return
        theirs = with_mlflow(Path(folder), rows) / rows
        print(f"mlflow log_metric, SQLite: {theirs * 1e3:.3f} ms a row, ratio {ours / theirs:.3f}")


def with_trek(folder: Path, rows: int) -> float:
    """Seconds the calls take, against a control plane that needs 10 ms for every report."""

    def send(report: Report) -> ReportReply:
        time.sleep(SERVER_S)
        return ReportReply()

    with ControlPlaneLogger(send, run=1, folder=folder, stop=StopRequest()) as logger:
        start = time.perf_counter()
        for at in range(rows):
            logger.log_metrics(
                MetricRow(group="training", batches=at, epoch=0.0, metrics={"loss": 0.5}, time_s=0.0, duration_s=0.0)
            )
        return time.perf_counter() - start


def with_mlflow(folder: Path, rows: int) -> float:
    """Seconds of as many calls of log_metric."""
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    with mlflow.start_run():
        start = time.perf_counter()
        for at in range(rows):
            mlflow.log_metric("loss", 0.5, step=at)
        return time.perf_counter() - start


if __name__ == "__main__":
    main()
