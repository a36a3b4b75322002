"""Elastic runs with random faults, seed after seed: `make campaign ARGS="-k elastic"`."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import trek
from trek.testing.elastic_training import NUM_BATCHES, Fault, Phase, check_ledgers, train_with_ledger

EPOCHS = 2
WORKERS = 4
RUNS_PER_SEED = 10

pytestmark = [pytest.mark.campaign, pytest.mark.usefixtures("warm_dir")]


def draw_faults(rng: random.Random) -> list[Fault]:
    """Up to three workers that die, hang or leave; the fourth goes on, so that nothing begins again."""
    doomed = rng.sample(range(WORKERS), rng.randint(1, WORKERS - 1))
    phases = [phase for phase in get_args(Phase) if phase not in ("save", "finish")]  # nothing is saved here
    return [_draw_fault(rng, worker, phases) for worker in doomed]


def _draw_fault(rng: random.Random, worker: int, phases: list[Phase]) -> Fault:
    phase = rng.choice(phases)
    batch = rng.choice((NUM_BATCHES, EPOCHS * NUM_BATCHES)) if phase in ("report", "validation") else rng.randint(1, 24)
    return Fault(rng.choices(("kill", "stop", "term"), (8, 1, 1))[0], phase, worker, batch)


def draw_settings(rng: random.Random) -> dict[str, int]:
    """Steps of one or several batches, and reports at any of them."""
    return {"accumulate": rng.choice((1, 1, 2, 3)), "report_period": rng.choice((100, 5))}


def _train(folder: Path, faults: list[Fault], **settings: Any) -> dict[str, Any]:
    folder.mkdir()
    given = (str(folder), faults, EPOCHS, 0.01)
    result: dict[str, Any] = trek.run(train_with_ledger, *given, workers=(1, WORKERS), show_progress=False, **settings)
    return result


@cache
def _undisturbed(elastic: str, accumulate: int, report_period: int, folder: Path) -> dict[str, Any]:
    return _train(folder, [], elastic=elastic, accumulate=accumulate, report_period=report_period)


@pytest.mark.parametrize("elastic", ["fast", "exact"])
@pytest.mark.parametrize("seed", range(25))
def test_random_faults_change_nothing(
    seed: int,
    elastic: str,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TREK_HEARTBEAT_S", "2")
    for number in range(RUNS_PER_SEED):
        rng = random.Random(f"{seed}-{number}")
        faults, settings = draw_faults(rng), draw_settings(rng)
        name = "-".join(map(str, (elastic, *settings.values())))
        expected = _undisturbed(elastic, *settings.values(), tmp_path_factory.getbasetemp() / f"undisturbed-{name}")
        result = _train(tmp_path / str(number), faults, elastic=elastic, **settings)
        assert result["batches"] == EPOCHS * NUM_BATCHES, (faults, settings)
        if elastic == "exact":
            assert result["weights"] == expected["weights"], (faults, settings)
            continue
        if settings["accumulate"] == 1:
            check_ledgers(tmp_path / str(number), epochs=EPOCHS)
        for weights, reference in zip(result["weights"], expected["weights"], strict=True):
            torch.testing.assert_close(torch.tensor(weights), torch.tensor(reference), rtol=1e-4, atol=1e-5)
        # What a worker had not reported yet is lost when it is killed, and handed over when it leaves.
        is_whole = all(fault.how == "term" for fault in faults)
        for row, reference in zip(result["epochs"], expected["epochs"], strict=True):
            for key in ("train_count", "valid_loss", *(["train_loss"] if is_whole else [])):
                assert row[key] == pytest.approx(reference[key], rel=1e-4), (key, faults, settings)
