"""Trials killed and supervisors dropped at seeded moments of a search, quickly and often; it ends as it should.

Trials are small scripts here, and the control plane has no process of its own: see `tests/e2e` for real ones.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from trek.client import models
from trek.search import preview

MakePlane = Callable[..., Any]
SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
SEARCHER = {"name": "asha", "metric": "error", "num_rungs": 3, "divisor": 4, "promote": True}
# Trains one batch at a time to the length the store gives, spooling a row before each batch counts as saved.
TRAINING = """
import sqlite3
trial, home = os.environ["TREK_TRIAL_ID"], plane_home
length, hparams = sqlite3.connect(f"file:{home}/control.db?mode=ro", uri=True).execute(
    "select length, hparams from trials where id = ?", [trial]).fetchone()
saved = f"{os.path.dirname(run_dir)}/saved"
batch = int(open(saved).read()) if os.path.exists(saved) else 0
with open(folder + "/spool.jsonl", "a", buffering=1) as spool:
    while batch < length:
        time.sleep(0.02)
        batch += 1
        row = {"group": "validation", "batches": batch, "metrics": {"error": json.loads(hparams)["lr"]}, "time_s": 1.0}
        spool.write(json.dumps({"run": run, "metrics": [row]}) + chr(10))
        with open(saved + ".new", "w") as file: file.write(str(batch))
        os.replace(saved + ".new", saved)
print("ends at", batch)
outcome("done")
"""


def play(
    make_plane: MakePlane, *, num_trials: int, length: int, num_kills: int, seed: int, rate: float
) -> tuple[models.ExperimentDetails, Any]:
    rng = random.Random(seed)
    plane = make_plane(TRAINING, slots=3)
    searcher = {**SEARCHER, "max_trials": num_trials, "max_length": length}
    number = plane.create(searcher=searcher, hyperparameters=SPACE, max_restarts=1000)
    kills = 0
    deadline = time.monotonic() + 600
    while plane.services.experiments.get(number).state not in models.ENDED:
        assert time.monotonic() < deadline
        plane.supervisor.tick()
        time.sleep(0.01)
        if kills < num_kills and plane.supervisor.running and rng.random() < rate:
            kills += 1
            if rng.random() < 0.5:
                running = rng.choice(list(plane.supervisor.running.values()))
                for pid in running.gang.pids.values():
                    with contextlib.suppress(ProcessLookupError):  # it may have come to its end just now
                        os.kill(pid, signal.SIGKILL)
            else:
                plane = make_plane(TRAINING, slots=3)  # the old one is dropped where it stands
                plane.supervisor._find_gangs()
    assert kills == num_kills, "the search was over before it was disturbed enough"
    return plane.services.experiments.get(number), plane


def check(make_plane: MakePlane, *, num_trials: int, **settings: Any) -> None:
    details, plane = play(make_plane, num_trials=num_trials, **settings)
    assert details.state == "completed"
    assert [trial.state for trial in details.trials] == ["completed"] * num_trials
    for trial in details.trials:
        rows = [point.batches for point in plane.services.trials.metrics(trial.id)]
        assert rows == list(range(1, trial.length["batches"] + 1)), "every row once"
        ends = [line.text for line in plane.services.logs.read(trial_id=trial.id) if line.text.startswith("ends")]
        assert len(ends) == len(set(ends)), "no rung is come to twice"
    best = min(details.trials, key=lambda trial: trial.hparams["lr"])
    assert (details.best_trial, details.best_metric) == (best.id, best.hparams["lr"])
    ends_at = Counter(trial.length["batches"] for trial in details.trials)
    expected = {row["length"]: row["trials"] for row in preview(details.config)}
    assert ends_at.total() == sum(expected.values())
    assert best.length["batches"] == settings["length"], "the best goes all the way"
    # A late best trial is promoted besides those that were promoted before it: more may go further, never fewer.
    for length in expected:
        assert _num_beyond(ends_at, length) >= _num_beyond(expected, length)


def _num_beyond(ends_at: Mapping[int, int], length: int) -> int:
    return sum(count for end, count in ends_at.items() if end > length)


def test_a_search_comes_to_the_same_end_however_often_it_is_killed(make_plane: MakePlane) -> None:
    check(make_plane, num_trials=6, length=64, num_kills=10, seed=1, rate=0.5)


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(5))
def test_a_long_search_comes_to_the_same_end(make_plane: MakePlane, seed: int) -> None:
    check(make_plane, num_trials=30, length=256, num_kills=100, seed=seed, rate=1.0)
