"""Asynchronous workers of parameter servers with random faults: `make campaign ARGS="-k ps_workers"`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import trek
from trek.testing.elastic_training import Fault, Phase
from trek.testing.ps_training import NUM_BATCHES, check_counts, train_counting

EPOCHS = 2
WORKERS = 3
RUNS_PER_SEED = 5
PHASES: list[Phase] = ["batch", "before_sum", "after_sum", "report", "validation", "giving", "entering"]

pytestmark = pytest.mark.campaign


def draw_faults(rng: random.Random) -> list[Fault]:
    """Any of the workers dies, hangs or leaves; all of them may, and then the run begins anew."""
    return [_draw_fault(rng, worker) for worker in rng.sample(range(WORKERS), rng.randint(1, WORKERS))]


def _draw_fault(rng: random.Random, worker: int) -> Fault:
    phase = rng.choice(PHASES)
    at_meeting = phase in ("report", "validation", "giving", "entering")
    batch = rng.choice((NUM_BATCHES, EPOCHS * NUM_BATCHES)) if at_meeting else rng.randint(1, EPOCHS * NUM_BATCHES)
    return Fault(rng.choices(("kill", "stop", "term"), (8, 1, 1))[0], phase, worker, batch)


def draw_settings(rng: random.Random) -> dict[str, Any]:
    """How often they meet, and how a step is made."""
    options = rng.choice([{}, {"max_lead": 2}, {"pull_period": 3}])
    accumulate = rng.choice([1, 1, 3])
    return {"report_period": rng.choice([3, 10, 100]), "accumulate": accumulate, "strategy_options": options}


@pytest.mark.parametrize("seed", range(20))
def test_random_faults_change_nothing(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREK_HEARTBEAT_S", "5")
    for number in range(RUNS_PER_SEED):
        rng = random.Random(f"{seed}-{number}")
        faults, settings = draw_faults(rng), draw_settings(rng)
        folder = tmp_path / str(number)
        folder.mkdir()
        common = {"strategy": "ps", "servers": rng.choice((1, 2)), "workers": (1, WORKERS), "show_progress": False}
        result = trek.run(train_counting, str(folder), faults, EPOCHS, 0.02, **common, **settings)
        check_counts(result, epochs=EPOCHS)
