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
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from trek.client.client import Client
from trek.client.embedded import running_address
from trek.client.models import ENDED, ExperimentDetails

JOB = Path(__file__).parent / "job"


def main() -> None:
    """Run both schedules, each with a control plane of its own, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--gang", type=int, default=3, help="slots that a job which is not elastic needs")
    parser.add_argument("--batches", type=int, default=100, help="batches of 24 rows of each job")
    parser.add_argument("--row-s", type=float, default=0.02, help="time of one slot for one row")
    parser.add_argument("--delay-s", type=float, default=5.0, help="when the second job is submitted")
    settings = parser.parse_args()
    gang = measure("gang-scheduled", settings.gang, settings)
    elastic = measure("elastic", {"min": 1, "max": settings.slots}, settings)
    for name in ("makespan", "mean completion"):
        print(f"{name}: elastic / gang-scheduled = {elastic[name] / gang[name]:.2f}")


def measure(name: str, slots_per_trial: Any, settings: argparse.Namespace) -> dict[str, float]:
    """Run two jobs with so many slots each; their times."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        environ = {**os.environ, "TREK_HOME": str(home), "TREK_SLOTS": str(settings.slots)}
        try:
            numbers = [submit(Path(folder), slots_per_trial, settings, environ)]
            time.sleep(settings.delay_s)
            numbers.append(submit(Path(folder), slots_per_trial, settings, environ))
            jobs = [wait(home, number) for number in numbers]
        finally:
            subprocess.run(
                [sys.executable, "-m", "trek", "cluster", "stop", "--kill"],
                env=environ,
                check=False,
                capture_output=True,
            )
    ended_s = [job.ended_s or 0.0 for job in jobs]
    times = {
        "makespan": max(ended_s) - jobs[0].created_s,
        "mean completion": sum(end - job.created_s for end, job in zip(ended_s, jobs, strict=True)) / len(jobs),
    }
    restarts = sum(trial.restarts for job in jobs for trial in job.trials)
    print(f"{name}: " + ", ".join(f"{key} {value:.1f} s" for key, value in times.items()) + f", {restarts} restarts")
    return times


def submit(folder: Path, slots_per_trial: Any, settings: argparse.Namespace, environ: dict[str, str]) -> int:
    """Create one job; its id."""
    config = {
        "name": "two-jobs",
        "entrypoint": "model_def:FixedWork",
        "hyperparameters": {"global_batch_size": 24, "row_s": settings.row_s},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": settings.batches}},
        "training": {"strategy": "ddp"},
        "resources": {"slots_per_trial": slots_per_trial},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "trek", "experiment", "create", str(path), str(JOB), "--no-follow", "--json"]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    return int(json.loads(done.stdout)["id"])


def wait(home: Path, number: int) -> ExperimentDetails:
    """The job, once it has ended well."""
    address = running_address(home)
    assert address is not None, "the control plane runs"
    with Client(address) as client:
        while (job := client.experiment(number)).state not in ENDED:
            time.sleep(0.2)
    if job.state != "completed":
        raise SystemExit(f"job {number} is {job.state}: {job.error}")
    return job


if __name__ == "__main__":
    main()
