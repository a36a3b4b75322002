"""Metrics logged one by one with MLflow to SQLite, synchronously and asynchronously: seconds, as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import mlflow


def log(rows: int, *, synchronous: bool) -> float:
    """Seconds of the calls; asynchronous writes are complete when the run ends."""
    with mlflow.start_run():
        mlflow.log_metric("loss", 0.5, step=0)  # the first call creates what the others reuse
        start = time.perf_counter()
        for at in range(rows):
            mlflow.log_metric("loss", 0.5, step=at + 1, synchronous=synchronous)
        return time.perf_counter() - start


def main(rows: int, folder: str) -> None:
    """Log both ways and print."""
    mlflow.set_tracking_uri(f"sqlite:///{Path(folder) / 'mlflow.db'}")
    seconds = {"synchronous": log(rows, synchronous=True), "asynchronous": log(rows, synchronous=False)}
    print(json.dumps({**seconds, "version": mlflow.__version__}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
