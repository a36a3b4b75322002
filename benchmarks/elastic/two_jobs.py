"""Two jobs share a cluster: elastic trials against trials that need all their slots at once. The same work, same slots.

    python benchmarks/elastic/two_jobs.py

The second job is submitted a little after the first. Where each needs `--gang` slots, it waits until the first has
ended, and slots that are too few for it stay idle. Elastic trials take what is free and give it back. The work of a
batch is slept, so the figures do not depend on how busy the machine's cores are; the starts of processes do. Printed
are the time until both jobs are done (makespan), the mean time from submission to completion, and elastic's ratios.
ElasticDL reports 580 s against 795 s (0.73) for two jobs on a cluster.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from trek.client.client import Client
from trek.client.embedded import ensure_running
from trek.client.models import ENDED, ExperimentDetails
from trek.experiments.creation import create_experiment

JOB = Path(__file__).parent / "job"
ROWS = 24
"""Of a batch: 1, 2, 3 and 4 workers have equal shares."""


def main() -> None:
    """Run both schedules, each with a control plane of its own, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--gang", type=int, default=3, help="slots that a job which is not elastic needs")
    parser.add_argument("--batches", type=int, default=40, help="batches of each job")
    parser.add_argument("--row-s", type=float, default=0.1, help="time of one slot for one row")
    parser.add_argument("--delay-s", type=float, default=5.0, help="when the second job is submitted")
    settings = parser.parse_args()
    gang = measure("gang-scheduled", settings.gang, settings)
    elastic = measure("elastic", {"min": 1, "max": settings.slots}, settings)
    for name in ("makespan", "mean completion"):
        print(f"{name}: elastic / gang-scheduled = {elastic[name] / gang[name]:.2f}")


def measure(name: str, slots_per_trial: Any, settings: argparse.Namespace) -> dict[str, float]:
    """Run two jobs with so many slots each; their times. A short one before them warms the control plane up."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        os.environ |= {"TREK_HOME": str(home), "TREK_SLOTS": str(settings.slots)}
        try:
            with Client(ensure_running(home)) as client:
                wait(client, submit(client, slots_per_trial, settings, batches=1))
                jobs = [submit(client, slots_per_trial, settings, batches=settings.batches)]
                time.sleep(settings.delay_s)
                jobs.append(submit(client, slots_per_trial, settings, batches=settings.batches))
                ended = [wait(client, job) for job in jobs]
        finally:
            stop = [sys.executable, "-m", "trek", "cluster", "stop", "--kill"]
            subprocess.run(stop, check=False, capture_output=True)
    return report(name, ended)


def report(name: str, jobs: list[ExperimentDetails]) -> dict[str, float]:
    """Print the times of two jobs that have ended, and return them."""
    ended_s = [job.ended_s or 0.0 for job in jobs]
    times = {
        "makespan": max(ended_s) - jobs[0].created_s,
        "mean completion": sum(end - job.created_s for end, job in zip(ended_s, jobs, strict=True)) / len(jobs),
    }
    restarts = sum(trial.restarts for job in jobs for trial in job.trials)
    shown = ", ".join(f"{key} {value:.1f} s" for key, value in times.items())
    print(f"{name}: {shown}, {restarts} restarts", flush=True)
    return times


def submit(client: Client, slots_per_trial: Any, settings: argparse.Namespace, *, batches: int) -> ExperimentDetails:
    """Create one job."""
    config = {
        "name": "two-jobs",
        "entrypoint": "model_def:FixedWork",
        "hyperparameters": {"global_batch_size": ROWS, "row_s": settings.row_s},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": batches}},
        "training": {"strategy": "ddp"},
        "resources": {"slots_per_trial": slots_per_trial},
    }
    return create_experiment(config, JOB, connect=lambda: client)


def wait(client: Client, job: ExperimentDetails) -> ExperimentDetails:
    """The job, once it has ended well."""
    while job.state not in ENDED:
        time.sleep(0.2)
        job = client.experiment(job.id)
    if job.state != "completed":
        raise SystemExit(f"job {job.id} is {job.state}: {job.error}")
    return job


if __name__ == "__main__":
    main()
