"""Ranks that stand still: one report that names who holds the others up, and what follows it."""

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
from torch import nn

import trek
from trek.errors import ConfigError, RankFailed
from trek.testing.trials import PointsTrial

ROWS = torch.linspace(-1, 1, 48)[:, None]
HANG_S = 2.0


def train(tr: trek.Traveler, how: str, rank: int, marks: str, times: int) -> list[float]:
    """Train 12 batches; before batch 5, `rank` stands still for good, the first so many times."""
    model = tr.add_model(nn.Linear(1, 1))
    optimizer = tr.add_optimizer(torch.optim.Adam(model.parameters(), lr=0.1))
    data = tr.add_loader((ROWS, 2 * ROWS), global_batch_size=4, shuffle=True)
    for _ in tr.epochs(1):
        for x, y in tr.train(data):
            if tr.position.batches == 5 and tr.world.rank == rank:
                _stand_still(tr, how, Path(marks), times)
            tr.backward((model(x) - y).square().mean())
            tr.step(optimizer)
    return [*model.weight.flatten().tolist(), *model.bias.tolist()]


def _stand_still(tr: trek.Traveler, how: str, marks: Path, times: int) -> None:
    if (before := len(list(marks.iterdir()))) >= times:
        return
    (marks / str(before)).touch()
    if how == "sleep":
        time.sleep(600)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        tr.strategy.gather("only this rank asks")


def run(marks: Path, how: str = "sleep", *, rank: int = 1, times: int = 1, **settings: Any) -> list[float]:
    marks.mkdir()
    named: dict[str, Any] = {"checkpoint_period": trek.batches(1), "show_progress": False, "hang_s": HANG_S, **settings}
    weights: list[float] = trek.run(train, how, rank, str(marks), times, workers=2, **named)
    return weights


@pytest.mark.parametrize(
    ("how", "rank", "culprit"),
    [
        ("sleep", 1, "rank 1 is at test_hangs.py:"),
        ("sleep", 0, "rank 0 is at test_hangs.py:"),
        ("stop", 1, "rank 1 does not answer: the process is stopped"),
        ("stop", 0, "rank 0 does not answer: the process is stopped"),
        ("gather", 1, "ranks wait in different collectives, rank 0 in all_reduce and rank 1 in "),
    ],
)
def test_one_report_names_the_rank_that_the_others_wait_for(
    tmp_path: Path, how: str, rank: int, culprit: str, capfd: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    with pytest.raises(RankFailed, match=f"no batch was finished for {HANG_S:g} s") as caught:
        run(tmp_path / "marks", how, rank=rank, on_hang="stop")
    assert culprit in str(caught.value)
    assert time.monotonic() - started < 120
    printed = capfd.readouterr().err
    assert printed.count("trek: no batch was finished") == 1
    assert culprit in printed
    assert "test_hangs.py" in printed, "the stacks are part of it"


def test_a_restarted_run_ends_with_the_bits_of_one_that_never_hung(tmp_path: Path) -> None:
    calm = run(tmp_path / "calm", times=0)
    assert run(tmp_path / "marks", times=2, on_hang="restart") == calm
    assert len(list((tmp_path / "marks").iterdir())) == 2


def test_a_hang_that_comes_back_at_the_same_place_ends_the_run_after_two_restarts(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match=r"rank 1 is at test_hangs\.py"):
        run(tmp_path / "marks", times=9, on_hang="restart")
    assert len(list((tmp_path / "marks").iterdir())) == 3


class SlowValidation(PointsTrial):
    """The leader evaluates all data, for much longer than a batch may take."""

    def evaluate_full_dataset(self, data_loader: Any, model: nn.Module) -> dict[str, float]:
        time.sleep(3 * HANG_S)
        return {"validation_loss": 1.0}


def test_a_validation_on_one_rank_that_takes_its_time_is_no_hang(capfd: pytest.CaptureFixture[str]) -> None:
    result = trek.fit(
        SlowValidation,
        hparams={"global_batch_size": 6, "rows": 12},
        max_length=trek.batches(2),
        workers=2,
        hang_s=HANG_S,
        on_hang="stop",
        show_progress=False,
    )
    assert result.best is not None
    assert "no batch was finished" not in capfd.readouterr().err


def test_an_elastic_run_evicts_and_takes_no_other_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"on_hang='stop' needs a fixed number of workers"):
        trek.run(train, "sleep", 1, str(tmp_path), 0, workers=(1, 2), on_hang="stop", show_progress=False)


def test_processes_of_torchrun_report_too(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    (tmp_path / "script.py").write_text(
        "import sys, trek\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.distributed.test_hangs import train\n"
        f"with trek.Traveler(hang_s={HANG_S}, on_hang='stop', show_progress=False) as tr:\n"
        f"    train(tr, 'sleep', 1, {str(tmp_path / 'marks')!r}, 1)\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode != 0
    assert done.stderr.count("trek: no batch was finished") == 1
    assert "rank 1 is at test_hangs.py" in done.stderr
