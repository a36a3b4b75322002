"""Workers are really killed, stopped and added while they train: every row is trained once, whoever dies and when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import trek
from tests.conftest import REPOSITORY
from trek.testing.elastic_training import NUM_BATCHES, Fault, Phase, check_ledgers, train_with_ledger
from trek.testing.trials import PointsTrial

EPOCHS = 2

pytestmark = [pytest.mark.usefixtures("warm_dir"), pytest.mark.timeout(300)]


@cache
def _undisturbed(num_optimizers: int, accumulate: int) -> list[torch.Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        given = (folder, (), EPOCHS, 0.0, num_optimizers)
        result = trek.run(train_with_ledger, *given, workers=1, show_progress=False, accumulate=accumulate)
    return [torch.tensor(weights) for weights in result["weights"]]


def _train(
    folder: Path,
    *faults: Fault,
    workers: tuple[int, int] = (1, 4),
    delay_s: float = 0.0,
    num_optimizers: int = 1,
    accumulate: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """Train with these faults; the weights must be those of an undisturbed run, but for rounding."""
    folder.mkdir()
    given = (str(folder), faults, EPOCHS, delay_s, num_optimizers)
    result: dict[str, Any] = trek.run(
        train_with_ledger, *given, workers=workers, show_progress=False, accumulate=accumulate, **more
    )
    assert result["batches"] == EPOCHS * NUM_BATCHES
    for trained, expected in zip(result["weights"], _undisturbed(num_optimizers, accumulate), strict=True):
        torch.testing.assert_close(torch.tensor(trained), expected, rtol=1e-4, atol=1e-5)
    return result


SCENARIOS = {
    "in the middle of batches and sums": [
        Fault("kill", "batch", 1, 3),
        Fault("kill", "before_sum", 0, 5),
        Fault("kill", "some_of_sum", 2, 7),
    ],
    "after the sum, and two at once": [
        Fault("kill", "after_sum", 1, 3),
        Fault("kill", "batch", 2, 5),
        Fault("kill", "batch", 3, 5),
    ],
    "in reports and validations": [
        Fault("kill", "report", 0, 12),
        Fault("kill", "validation", 1, 12),
        Fault("kill", "validation", 2, 24),
    ],
    "while meeting, and while giving its state": [
        Fault("kill", "some_of_sum", 1, 5),
        Fault("kill", "giving", 0, 5),
        Fault("kill", "entering", 2, 5),
    ],
}


@pytest.mark.parametrize("faults", SCENARIOS.values(), ids=SCENARIOS)
def test_every_row_is_trained_once(faults: list[Fault], tmp_path: Path) -> None:
    result = _train(tmp_path / "run", *faults)
    check_ledgers(tmp_path / "run", epochs=EPOCHS)
    assert len(result["epochs"]) == EPOCHS


@pytest.mark.parametrize("phase", ["entering", "assembling", "connecting", "proving", "sharing_memory", "taking"])
def test_a_worker_may_die_at_every_step_from_a_formation_to_its_first_batch(phase: Phase, tmp_path: Path) -> None:
    """In the first generation, or when it joins, and in the one that follows a death."""
    later = [Fault("kill", "batch", 0, 3), Fault("kill", phase, 2, 2), Fault("kill", phase, 2, 3)]
    _train(tmp_path / "run", Fault("kill", phase, 0, 0), *later, workers=(1, 3), delay_s=0.1)
    check_ledgers(tmp_path / "run", epochs=EPOCHS)
    assert (tmp_path / "run" / f"kill-{phase}-0-0").exists(), "it was killed there"


def test_a_killed_worker_is_replaced_and_the_new_one_falls_in(tmp_path: Path) -> None:
    _train(tmp_path / "run", Fault("kill", "batch", 1, 2), workers=(1, 2), delay_s=0.5)
    sizes = check_ledgers(tmp_path / "run", epochs=EPOCHS)
    assert sizes[EPOCHS * NUM_BATCHES] == 2
    assert len(list((tmp_path / "run").glob("*.jsonl"))) == 3


def test_a_worker_that_hangs_is_put_out_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREK_HEARTBEAT_S", "3")
    _train(tmp_path / "run", Fault("stop", "before_sum", 0, 4), workers=(1, 2), delay_s=0.2)
    check_ledgers(tmp_path / "run", epochs=EPOCHS)


def test_one_worker_is_asked_to_leave_and_the_others_go_on(tmp_path: Path) -> None:
    _train(tmp_path / "run", Fault("term", "batch", 0, 2), workers=(1, 2), delay_s=0.05)
    sizes = check_ledgers(tmp_path / "run", epochs=EPOCHS)
    assert sizes[1] == 2


def test_all_workers_are_killed_and_the_job_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    faults = [Fault("kill", "batch", worker, 15) for worker in range(2)]
    result = _train(tmp_path / "run", *faults, workers=(2, 2), checkpoint_period=trek.batches(5))
    assert len(result["epochs"]) == EPOCHS


@pytest.mark.parametrize("settings", [{"num_optimizers": 2}, {"accumulate": 3}], ids=["two optimizers", "accumulation"])
def test_a_step_of_several_parts_is_applied_once(settings: dict[str, int], tmp_path: Path) -> None:
    faults = [Fault("kill", "some_of_sum", 1, 6), Fault("kill", "batch", 0, 11)]
    _train(tmp_path / "run", *faults, workers=(1, 3), **settings)


def test_exact_gives_the_same_bits_whoever_is_killed(tmp_path: Path) -> None:
    undisturbed = _train(tmp_path / "undisturbed", workers=(1, 3), elastic="exact")
    faults = [Fault("kill", "some_of_sum", 1, 4), Fault("kill", "before_sum", 0, 9)]
    disturbed = _train(tmp_path / "disturbed", *faults, workers=(1, 3), elastic="exact", delay_s=0.1)
    assert disturbed["weights"] == undisturbed["weights"]


@pytest.mark.parametrize(
    ("more", "rounding"),
    [
        ({}, 1e-4),
        ({"precision": "bf16", "ema_decay": 0.9, "accumulate": 2, "clip_norm": 0.5}, 2e-2),
    ],
    ids=["plain", "everything"],
)
def test_a_trial_goes_on_without_its_leader(more: dict[str, Any], rounding: float, tmp_path: Path) -> None:
    own = {"global_batch_size": 12, "rows": 120, "momentum": 0.9, "kills": str(tmp_path / "killed")}
    settings: dict[str, Any] = {
        "hparams": own,
        "max_length": trek.epochs(3),
        "checkpoint_period": trek.batches(7),
        "report_period": 5,
        "show_progress": False,
        **more,
    }
    elastic = trek.fit(LeaderDies, workers=(1, 3), **settings)
    alone = trek.fit(PointsTrial, workers=1, **settings)
    assert (tmp_path / "killed").exists()
    assert elastic.checkpoint is not None
    assert alone.checkpoint is not None
    weights = alone.checkpoint.state_dict()
    for name, weight in elastic.checkpoint.state_dict().items():
        torch.testing.assert_close(weight, weights[name], rtol=rounding, atol=rounding / 10)
    rows = [[(row["group"], row["batches"]) for row in run.metrics] for run in (elastic, alone)]
    assert rows[0] == rows[1]


def test_a_fit_in_a_launched_script_has_one_folder_whoever_leads(home: Path, tmp_path: Path) -> None:
    hparams = {"global_batch_size": 12, "rows": 120, "kills": str(tmp_path / "killed")}
    (tmp_path / "train.py").write_text(
        "import trek\nfrom tests.distributed.test_elastic import LeaderDies\n"
        f"settings = dict(hparams={hparams}, max_length=trek.epochs(3), show_progress=False)\n"
        "result = trek.fit(LeaderDies, **settings)\n"
        "print(result.path, result.checkpoint.path, flush=True)\n"
        "try:\n    trek.fit(LeaderDies, **settings)\n"
        "except trek.errors.InputError as error:\n    print(error, flush=True)\n"
    )
    command = [sys.executable, "-m", "trek", "launch", "--workers", "1:3", "train.py"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was lost") == 1, done.stderr
    told = {line.partition("] ")[2] for line in done.stdout.splitlines()}
    assert [folder.name for folder in (home / "runs").iterdir()] == ["leaderdies"]
    (refused,) = [line for line in told if line.startswith("an elastic job is one training")]
    told.remove(refused)
    assert len(told) == 1, told
    path, checkpoint = map(Path, told.pop().split())
    assert path == home / "runs" / "leaderdies"
    assert checkpoint.parent == path / "checkpoints"


class LeaderDies(PointsTrial):
    """The leader kills itself once, in the middle of the second epoch."""

    def train_batch(self, batch: Any, model: torch.nn.Module, batch_idx: int) -> Any:
        if batch_idx == 14 and self.context.distributed.get_rank() == 0 and self.context.distributed.get_size() > 1:
            path = Path(self.context.get_hparam("kills"))
            if not path.exists():
                path.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(batch, model, batch_idx)
