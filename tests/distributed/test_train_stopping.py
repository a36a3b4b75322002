"""SIGTERM and Ctrl-C to a real training process: it finishes its batch, saves, ends well, and goes on exactly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import trek
from trek.testing.trials import PointsTrial
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder

HPARAMS = {"global_batch_size": 8, "rows": 300, "dropout": 0.3, "momentum": 0.9}
SCRIPT = """
import os, time
from pathlib import Path
import trek
from trek.testing.trials import PointsTrial

class Slow(PointsTrial):
    def train_batch(self, batch, model, batch_idx):
        if batch_idx == 4:
            Path(os.environ["READY"]).touch()
        if batch_idx >= int(os.environ.get("SLOW_FROM", 4)):
            time.sleep(float(os.environ["BATCH_S"]))
        return super().train_batch(batch, model, batch_idx)

if __name__ == "__main__":
    result = trek.fit(
        Slow, hparams=HPARAMS, max_length=trek.epochs(2), workers=int(os.environ["WORKERS"]), name="run",
    )
    print("stopped for", result.stop_reason, "after", result.checkpoint.batches)
"""


class Job:
    """A script in a process of its own, that has come to where it touches $READY."""

    def __init__(self, folder: Path, script: str = SCRIPT, **variables: object) -> None:
        (folder / "script.py").write_text(script.replace("HPARAMS", repr(HPARAMS)))
        ready = folder / "ready"
        env = {**os.environ, "READY": str(ready), "BATCH_S": "0.05", **{k: str(v) for k, v in variables.items()}}
        self.process = subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        deadline = time.monotonic() + 240
        while not ready.exists():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline, "the script never got ready"
            time.sleep(0.01)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=240)
        return self.process.returncode, out, err


def fit(**settings: Any) -> dict[str, torch.Tensor]:
    result = trek.fit(PointsTrial, hparams=HPARAMS, max_length=trek.epochs(2), show_progress=False, **settings)
    assert result.stop_reason == ""
    assert result.checkpoint is not None
    return result.checkpoint.state_dict()


def assert_goes_on_to_the_bit(*, workers: int) -> None:
    resumed = fit(workers=workers, name="run", resume="latest")
    for name, weights in fit(workers=workers, name="whole").items():
        assert torch.equal(weights, resumed[name])


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_saves_and_ends_well_and_the_run_goes_on_to_the_bit(workers: int, tmp_path: Path) -> None:
    job = Job(tmp_path, WORKERS=workers)
    job.process.send_signal(signal.SIGTERM)
    code, out, err = job.end()
    assert code == 0, err
    assert out.startswith("stopped for signal after "), out
    assert 5 <= int(out.split()[-1]) < 76
    assert "Traceback" not in err
    assert 'saved; continue with resume="latest"' in err
    assert_goes_on_to_the_bit(workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_saves_and_ends_the_script_with_130(workers: int, tmp_path: Path) -> None:
    """`trek.fit` used to return as if the run was done, and the script went on with what was trained so far."""
    job = Job(tmp_path, WORKERS=workers)
    job.process.send_signal(signal.SIGINT)
    code, out, err = job.end()
    assert (code, out) == (130, ""), err
    assert "Traceback" not in err
    assert 'saved; continue with resume="latest"' in err
    assert_goes_on_to_the_bit(workers=workers)


LOOP = """
import os, time
from pathlib import Path
import torch, trek
from trek.testing.trials import make_points

def train(tr):
    model = tr.add_model(torch.nn.Linear(6, 2))
    sgd = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    data = tr.add_loader(make_points(400), batch_size=4)
    for epoch in EPOCHS:
        for points, labels in tr.train(data):
            if tr.position.batches == 4:
                Path(os.environ["READY"]).touch()
            if tr.position.batches >= 4:
                time.sleep(0.05)
            tr.backward(torch.nn.functional.cross_entropy(model(points), labels))
            tr.step(sgd)

if __name__ == "__main__":
    START
    print("went on")
"""
STARTS = {
    "plain": ("tr = trek.Traveler(checkpoint_dir='saved'); train(tr)", "tr.epochs(2)"),
    "range": ("tr = trek.Traveler(checkpoint_dir='saved'); train(tr)", "range(2)"),
    "with": ("with trek.Traveler(checkpoint_dir='saved') as tr: train(tr)", "tr.epochs(2)"),
    "run": ("trek.run(train, workers=1, checkpoint_dir='saved')", "tr.epochs(2)"),
}


@pytest.mark.parametrize(
    ("start", "number"),
    [
        *((start, signal.SIGTERM) for start in ("plain", "range", "with")),
        ("plain", signal.SIGINT),
        ("run", signal.SIGINT),
    ],
)
def test_a_loop_of_ones_own_saves_and_ends_with_130(start: str, number: signal.Signals, tmp_path: Path) -> None:
    """A Traveler that a script made itself used to die of SIGTERM without saving."""
    call, epochs = STARTS[start]
    job = Job(tmp_path, LOOP.replace("EPOCHS", epochs).replace("START", call))
    job.process.send_signal(number)
    code, out, err = job.end()
    assert (code, out) == (130, ""), err
    assert "Traceback" not in err
    (saved,) = (tmp_path / "saved").iterdir()
    assert 4 <= CheckpointFolder(saved).batches < 200


def test_signals_are_as_before_when_a_loop_has_ended(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    tr = trek.Traveler(show_progress=False)
    for _ in tr.train([torch.zeros(1)]):
        assert signal.getsignal(signal.SIGTERM) is not before
        break
    assert signal.getsignal(signal.SIGTERM) is before
    with trek.Traveler(show_progress=False):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    tr.close()


def test_a_signal_after_the_last_batch_still_ends_the_program() -> None:
    with pytest.raises(SystemExit) as caught, trek.Traveler(show_progress=False):
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 130
    with pytest.raises(KeyboardInterrupt), trek.Traveler(show_progress=False):
        os.kill(os.getpid(), signal.SIGINT)


def test_ranks_with_slow_batches_notice_a_signal_after_a_batch_or_two(tmp_path: Path) -> None:
    """They asked each other every 16th batch, and the starter killed them before."""
    job = Job(tmp_path, WORKERS=2, BATCH_S=1.1, SLOW_FROM=0)
    job.process.send_signal(signal.SIGTERM)
    code, out, err = job.end()
    assert code == 0, err
    assert 5 <= int(out.split()[-1]) < 16


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_ctrl_c_ends_at_once(workers: int, tmp_path: Path) -> None:
    """The batch would take ten minutes."""
    job = Job(tmp_path, WORKERS=workers, BATCH_S=600)
    job.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert job.process.poll() is None  # the first one waits for the batch
    job.process.send_signal(signal.SIGINT)
    code, _, err = job.end()
    assert code == -signal.SIGINT, err
    assert "KeyboardInterrupt" in err


EARLY = """
import os, time
from pathlib import Path
import trek

def load():
    Path(os.environ["READY"]).touch()
    time.sleep(60)

class SlowToArrive:
    def __reduce__(self):
        return load, ()

def train(tr, argument):
    raise AssertionError("it was stopped before")

if __name__ == "__main__":
    trek.run(train, SlowToArrive(), workers=2)
"""


def test_a_stop_before_training_began_ends_quietly(tmp_path: Path) -> None:
    job = Job(tmp_path, EARLY)
    job.process.send_signal(signal.SIGTERM)
    code, _, err = job.end()
    assert code == 130, err
    assert "Traceback" not in err


class StopsItself(PointsTrial):
    """The second process alone asks in the batch `stop_in`; both ask after the first epoch without it."""

    def train_batch(self, batch: Any, model: torch.nn.Module, batch_idx: int) -> dict[str, Any]:
        if batch_idx + 1 == self.context.get_hparam("stop_in") and not self.context.traveler.world.is_leader:
            self.context.set_stop_requested()
        return super().train_batch(batch, model, batch_idx)

    def build_callbacks(self) -> dict[str, trek.Callback]:
        return {} if self.context.get_hparam("stop_in") else {"stopping": StopAfterEpoch(self.context)}


class StopAfterEpoch(trek.Callback):
    def __init__(self, context: trek.TrialContext) -> None:
        self._context = context

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self._context.set_stop_requested()


@pytest.mark.parametrize(("stop_in", "first", "last"), [(3, 3, 16), (0, 38, 38)], ids=["in a batch", "between epochs"])
def test_processes_end_together_where_one_of_them_asks(stop_in: int, first: int, last: int) -> None:
    result = trek.fit(
        StopsItself, hparams={**HPARAMS, "stop_in": stop_in}, max_length=trek.epochs(2), workers=2, show_progress=False
    )
    assert result.stop_reason == "user"
    assert result.checkpoint is not None
    assert first <= result.checkpoint.batches <= last
