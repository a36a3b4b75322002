"""What is said when a process dies, hangs, or was started wrongly: who, how, and where the others were."""

from __future__ import annotations

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


def test_a_hang_is_told_by_every_rank_with_its_place_and_the_collective(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "hang rank=1 step=3")
    with pytest.raises(RankFailed) as caught:
        fit(hang_s=1.5, strategy_options={"timeout_s": 5.0})
    told = capfd.readouterr().err
    assert "trek: rank 0 has not finished a batch for 1.5 s: waiting in all_reduce" in told
    assert "[rank 1] trek: rank 1 has not finished a batch for 1.5 s: at test_train_failures.py" in told
    assert "rank 0 of 2 failed: " in str(caught.value)
    assert "rank 1 was at test_train_failures.py" in str(caught.value)


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


def _leave_early(traveler: trek.Traveler) -> None:
    raise SystemExit(0)


def test_a_rank_that_exits_before_its_function_returned_is_named() -> None:
    with pytest.raises(RankFailed, match="rank 0 of 2 exited with code 0 before its function returned"):
        trek.run(_leave_early, workers=2)
