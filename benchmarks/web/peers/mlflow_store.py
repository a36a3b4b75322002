"""A SQLite store of MLflow with many runs of one long metric; prints the experiment's id and MLflow's version as JSON.

Runs are made by MLflow; their points are written as its own logging would leave them, which would take hours.

    python mlflow_store.py RUNS POINTS DATABASE
"""

from __future__ import annotations

import json
import math
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing

import mlflow


def main(runs: int, points: int, database: str) -> None:
    """Make the runs, then write their points."""
    mlflow.set_tracking_uri(f"sqlite:///{database}")
    client, experiment = mlflow.MlflowClient(), mlflow.create_experiment("large")
    ids = []
    for number in range(runs):
        run = client.create_run(experiment, run_name=f"run {number}", start_time=0)
        client.log_param(run.info.run_id, "lr", 10 ** -(number % 40 / 10))
        client.set_terminated(run.info.run_id, end_time=points)
        ids.append(run.info.run_id)
    with closing(sqlite3.connect(database)) as rows, rows:
        rows.execute("PRAGMA synchronous = OFF")
        rows.executemany(
            "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES ('loss', ?, ?, ?, ?, 0)",
            _points(ids, points),
        )
        rows.execute(
            "INSERT INTO latest_metrics (key, value, timestamp, run_uuid, step, is_nan)"
            " SELECT key, value, timestamp, run_uuid, step, 0 FROM metrics WHERE step = ?",
            (points - 1,),
        )
    print(json.dumps({"experiment": experiment, "version": mlflow.__version__}))


def _points(ids: list[str], points: int) -> Iterator[tuple[float, int, str, int]]:
    # By time, not by run: the order in which MLflow's primary key (metric, time, …) is cheap to extend.
    generator = random.Random(0)
    for at in range(points):
        for number, run in enumerate(ids, start=1):
            yield math.exp(-(1 + number % 17) * at / points) + 0.05 * generator.random(), at * 100, run, at


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
