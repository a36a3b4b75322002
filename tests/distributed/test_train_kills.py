"""Processes of a training are really killed, at random moments, time after time: nothing of it shows in the weights."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from trek.system.home import trek_home
from trek.train.checkpointing.checkpoint_folder import find_latest
from trek.train.checkpointing.stores import open_storage

SCRIPT = """
import os, sys, time
from pathlib import Path
import trek
from trek.testing.trials import PointsTrial

class Told(PointsTrial):
    def train_batch(self, batch, model, batch_idx):
        Path(sys.argv[2], f"rank_{self.context.distributed.get_rank()}").write_text(f"{os.getpid()} {batch_idx}")
        time.sleep(0.005)
        return super().train_batch(batch, model, batch_idx)

if __name__ == "__main__":
    hparams = {"global_batch_size": 12, "rows": 600, "dropout": 0.3, "momentum": 0.9, "data": "mapped"}
    is_begun = Path(os.environ["TREK_HOME"], "runs", sys.argv[1]).exists()
    trek.fit(
        Told, hparams=hparams, max_length=trek.epochs(2), workers=int(sys.argv[3]), name=sys.argv[1],
        resume="latest" if is_begun else None, checkpoint_period=trek.batches(7), show_progress=False,
    )
"""


class Run:
    """One training, started as often as it takes."""

    def __init__(self, folder: Path, name: str, *, workers: int) -> None:
        self.name = name
        self._places = folder / f"{name}_places"
        self._places.mkdir()
        self._script = folder / "script.py"
        self._script.write_text(SCRIPT)
        self._workers = workers

    def start(self) -> subprocess.Popen[str]:
        for place in self._places.iterdir():
            place.unlink()
        command = [sys.executable, str(self._script), self.name, str(self._places), str(self._workers)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        _, err = process.communicate(timeout=240)
        return process.returncode, err

    def kill(self, process: subprocess.Popen[str], rng: random.Random) -> None:
        """Once every rank trains, wait a moment and kill one of them."""
        deadline = time.monotonic() + 240
        while len(list(self._places.iterdir())) < self._workers and process.poll() is None:
            assert time.monotonic() < deadline, "the ranks never began to train"
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.4))
        victim = self._places / f"rank_{rng.randrange(self._workers)}"
        if process.poll() is None and (words := victim.read_text().split()):
            with suppress(ProcessLookupError):  # it was done
                os.kill(int(words[0]), signal.SIGKILL)

    def weights(self) -> dict[str, torch.Tensor]:
        last = find_latest(open_storage(trek_home() / "runs" / self.name / "checkpoints"))
        assert last is not None
        assert last.batches == 100
        return last.state_dict()


def survives(folder: Path, *, workers: int, num_kills: int, seed: int) -> None:
    calm = Run(folder, f"calm_{seed}", workers=workers)
    code, err = calm.end(calm.start())
    assert code == 0, err
    run, rng = Run(folder, f"killed_{seed}", workers=workers), random.Random(seed)
    for _ in range(num_kills):
        process = run.start()
        run.kill(process, rng)
        code, err = run.end(process)
        if code == 0:  # it was quicker
            break
        assert "SIGKILL" in err, err
        assert len(err.splitlines()) <= 40, err
    code, err = run.end(run.start())
    assert code == 0, err
    expected = calm.weights()
    for name, weights in run.weights().items():
        assert torch.equal(weights, expected[name]), name


def test_a_training_whose_processes_are_killed_goes_on_to_the_bit(tmp_path: Path) -> None:
    survives(tmp_path, workers=2, num_kills=2, seed=1)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_trainings_survive_any_moment(seed: int, tmp_path: Path) -> None:
    survives(tmp_path, workers=2 + seed % 2, num_kills=10, seed=seed)
