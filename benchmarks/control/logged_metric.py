"""Cost of logging a metric for the training thread, compared with MLflow on SQLite, synchronous and asynchronous.

    python benchmarks/control/logged_metric.py --rows 2000 [--peers PYTHON]

The peer runs if it is installed in this Python, or in the one given by --peers; otherwise it is reported as skipped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from trek.client.models import Report, ReportReply
from trek.experiments.reporting import ControlPlaneLogger
from trek.train.loggers.base import MetricRow
from trek.train.loop.stopping import StopRequest

SERVER_S = 0.01


def main() -> None:
    """Log rows one by one and print the milliseconds per call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours = with_trek(Path(folder), settings.rows) / settings.rows
        print(f"trek, spooled to disk and sent in the background: {ours * 1e3:.3f} ms per row")
        result = with_mlflow(Path(folder), settings.rows, settings.peers)
        if isinstance(result, str):
            print(f"mlflow: skipped: {result}")
            return
        for mode in ("synchronous", "asynchronous"):
            theirs = result[mode] / settings.rows
            name = f"mlflow {result['version']}, SQLite, {mode}"
            print(f"{name}: {theirs * 1e3:.3f} ms per row, trek / peer: {ours / theirs:.3f}")


def with_trek(folder: Path, rows: int) -> float:
    """Seconds of the calls, with a control plane that takes 10 ms per report."""

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


def with_mlflow(folder: Path, rows: int, python: str) -> Any:
    """The result of MLflow's script, or its error message."""
    script = Path(__file__).parent / "peers" / "mlflow_metrics.py"
    done = subprocess.run([python, str(script), str(rows), str(folder)], capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else done.stderr.strip().splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 else (lines or ["no error message"])[-1]


if __name__ == "__main__":
    main()
