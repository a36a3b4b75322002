"""What is said when a process dies, hangs, or was started wrongly: who, how, and where the others were."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from torch import nn

import trek
from trek.errors import ConfigError, InputError, RankFailed
from trek.testing.faults import VARIABLE, FaultScript
from trek.testing.trials import PointsTrial
from trek.train.result import Result


class Faulty(PointsTrial):
    """Fails as TREK_FAULTS says."""

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        FaultScript.from_env(rank=self.context.distributed.get_rank()).at(batch_idx)
        return super().train_batch(batch, model, batch_idx)


def fit(**settings: Any) -> Result:
    hparams = {"global_batch_size": 6, "rows": 60, **settings.pop("hparams", {})}
    return trek.fit(Faulty, hparams=hparams, max_length=trek.epochs(2), workers=2, show_progress=False, **settings)


def test_a_killed_rank_is_named_with_its_signal_and_where_the_others_waited(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "kill rank=1 step=3")
    with pytest.raises(RankFailed) as caught:
        fit(name="run", checkpoint_period=trek.batches(1))
    said = str(caught.value)
    assert caught.value.rank == 1
    assert caught.value.process_exit_code == -9
    assert "rank 1 of 2 on " in said
    assert "was killed by SIGKILL" in said
    assert "rank 0 was waiting in all_reduce" in said
    printed = capfd.readouterr()
    assert len([*said.splitlines(), *printed.out.splitlines(), *printed.err.splitlines()]) <= 15

    # The folder holds what the ranks said then; a failure of the resumed run is told in its own words.
    monkeypatch.setenv(VARIABLE, "raise rank=0 step=7")
    with pytest.raises(RankFailed, match=r"rank 0 of 2 failed: .*told to fail at step 7") as caught:
        fit(name="run", resume="latest")
    assert "SIGKILL" not in str(caught.value)


def _join_wrongly(tr: trek.Traveler) -> None:
    raise AssertionError("the group should have been refused")


def test_settings_that_only_the_workers_can_judge_come_back_as_the_mistake_they_are() -> None:
    with pytest.raises(ConfigError, match=r"built without the communication backend 'mpi'\. Use gloo") as caught:
        fit(strategy_options={"backend": "mpi"})
    assert caught.value.exit_code == 2
    with pytest.raises(InputError, match=r"at least one record per process, got 1 for 2 process\(es\)"):
        fit(hparams={"global_batch_size": 1})


def test_a_loop_is_told_that_solo_is_for_one() -> None:
    with pytest.raises(InputError, match="'solo' trains one replica, got 2 processes"):
        trek.run(_join_wrongly, workers=2, strategy="solo")


def _leave(tr: trek.Traveler, how: str, rank: int) -> None:
    if tr.world.rank == rank:
        os._exit(int(how[1:])) if how.startswith("_") else sys.exit(int(how) if how.isdigit() else how)
    tr.barrier()


@pytest.mark.parametrize(
    ("how", "rank", "code", "words"),
    [
        ("3", 1, 3, "exited with code 3 before its function returned"),
        ("0", 1, 1, "exited with code 0 before its function returned"),
        ("no data", 0, 1, "exited with code 1, saying 'no data', before its function returned"),
        ("_0", 1, 0, "exited with code 0 before its function returned"),
        ("_4", 1, 4, "exited with code 4"),
    ],
)
def test_a_rank_that_exits_is_named_and_not_the_one_that_noticed(how: str, rank: int, code: int, words: str) -> None:
    """`sys.exit(3)` in rank 1 used to be blamed on rank 0, which had lost its connection."""
    with pytest.raises(RankFailed, match=words) as caught:
        trek.run(_leave, how, rank, workers=2)
    assert f"rank {rank} of 2" in str(caught.value).splitlines()[0]
    assert (caught.value.rank, caught.value.process_exit_code) == (rank, code)
