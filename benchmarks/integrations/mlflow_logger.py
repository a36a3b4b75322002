"""What a row of metrics costs the training thread with MLflow: Trek's logger beside MLflow's own `log_metrics`.

    python benchmarks/integrations/mlflow_logger.py [--rows 2000]

Both record to the same `mlflow server` on loopback, over SQLite, and take turns.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

import mlflow

from trek.integrations.mlflow import MLflowLogger
from trek.testing.mlflow_server import MLflowServer
from trek.train.loggers import JobIdentity, MetricRow

PARTS = 10


def main() -> None:
    """Print milliseconds a row of two metrics, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    rows = parser.parse_args().rows
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        server = MLflowServer(Path(folder), port=port)
        server.start()
        try:
            measure(server.url, rows=rows)
        finally:
            server.kill()


def measure(url: str, *, rows: int) -> None:
    """Take turns, so that a busy machine concerns both."""
    logger = MLflowLogger(tracking_uri=url, experiment="bench", drain_s=600)
    logger.identify(JobIdentity(key="bench"))
    logger.start(name="bench", hparams={})
    mlflow.set_tracking_uri(url)
    mlflow.set_experiment("bench")
    ours, theirs = [], []
    with mlflow.start_run():
        for part in range(PARTS):
            ours.append(timed(rows // PARTS, part, lambda step: logger.log_metrics(row(step))))
            theirs.append(timed(rows // PARTS // 10, part, lambda step: mlflow.log_metrics(values(step), step=step)))
    logger.end("completed")
    logger.close()
    own, peer = median(ours), median(theirs)
    print(f"trek's mlflow logger     {own:8.4f} ms a row on the training thread")
    print(f"mlflow {mlflow.__version__} log_metrics {peer:8.4f} ms a row")
    print(f"ratio                    {own / peer:8.5f}")


def timed(count: int, part: int, log: Callable[[int], object]) -> float:
    """Milliseconds a call."""
    start = time.perf_counter()
    for index in range(count):
        log(part * count + index)
    return (time.perf_counter() - start) / count * 1000


def values(step: int) -> dict[str, float]:
    """Two metrics."""
    return {"loss": 1 / (step + 1), "accuracy": 0.5}


def row(step: int) -> MetricRow:
    """As the loop makes it."""
    return MetricRow("training", step, 0.0, values(step), time_s=time.time())


if __name__ == "__main__":
    main()
