"""Asynchronous workers of parameter servers are really killed, added and stopped: every record is pushed once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import trek
from trek.errors import ConfigError
from trek.testing.elastic_training import Fault
from trek.testing.ps_training import NUM_BATCHES, Counting, check_counts, train_counting
from trek.testing.shell import wait_until

pytestmark = pytest.mark.timeout(300)
EPOCHS = 2


def _train(folder: Path, *faults: Fault, workers: Any, delay_s: float = 0.0, **more: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    options = {"workers": workers, "servers": 2, "strategy": "ps", "show_progress": False, **more}
    result: dict[str, Any] = trek.run(train_counting, str(folder), faults, EPOCHS, delay_s, **options)
    check_counts(result, epochs=EPOCHS)
    assert len(result["epochs"]) == EPOCHS
    return result


SCENARIOS: dict[str, tuple[list[Fault], dict[str, Any]]] = {
    "around a push": (
        [Fault("kill", "batch", 1, 3), Fault("kill", "before_sum", 0, 9), Fault("kill", "after_sum", 2, 20)],
        {},
    ),
    "in meetings, with short segments": (
        [Fault("kill", "report", 0, 5), Fault("kill", "validation", 1, NUM_BATCHES), Fault("kill", "entering", 2, 20)],
        {"report_period": 5},
    ),
    "while steps are accumulated": (
        [Fault("kill", "batch", 1, 4), Fault("kill", "after_sum", 0, 12)],
        {"accumulate": 3, "report_period": 7, "strategy_options": {"max_lead": 3}},
    ),
}


@pytest.mark.parametrize(("faults", "settings"), SCENARIOS.values(), ids=SCENARIOS)
def test_every_record_is_pushed_once(faults: list[Fault], settings: dict[str, Any], tmp_path: Path) -> None:
    _train(tmp_path / "run", *faults, workers=(1, 3), **settings)


def test_a_killed_worker_is_replaced_and_one_that_is_told_to_leaves(tmp_path: Path) -> None:
    faults = [Fault("kill", "batch", 1, 2), Fault("term", "batch", 0, NUM_BATCHES + 2)]
    result = _train(tmp_path / "run", *faults, workers=(1, 2), delay_s=0.2, report_period=4)
    assert result["generation"] > 2


@pytest.mark.campaign
def test_all_workers_are_killed_and_the_servers_go_back_to_the_last_checkpoint(tmp_path: Path) -> None:
    faults = [Fault("kill", "batch", worker, 20) for worker in range(2)]
    _train(tmp_path / "run", *faults, workers=2, delay_s=0.02, checkpoint_period=trek.batches(9))


def stop_once(tr: trek.Traveler, folder: str, starter: int) -> Any:
    """One of the workers has the run stopped, in the middle of an epoch, as by `kill` of the program."""
    if not (Path(folder) / "stopped").exists():
        step = tr.optimization.step

        def stopping(*args: Any, **named: Any) -> bool:
            if tr.position.batches > NUM_BATCHES + 3 and not (Path(folder) / "stopped").exists():
                (Path(folder) / "stopped").touch()
                os.kill(starter, signal.SIGTERM)
            return step(*args, **named)

        tr.optimization.step = stopping  # type: ignore[method-assign]
    return train_counting(tr, folder, epochs=EPOCHS, delay_s=0.01)


@pytest.mark.campaign
def test_a_run_that_is_stopped_goes_on_with_another_number_of_workers_and_servers(tmp_path: Path) -> None:
    common = {"strategy": "ps", "show_progress": False, "checkpoint_dir": tmp_path / "saved"}
    given = str(tmp_path), os.getpid()
    assert trek.run(stop_once, *given, workers=3, servers=1, **common) is None
    result = trek.run(stop_once, *given, workers=(1, 2), servers=2, resume="latest", **common)
    check_counts(result, epochs=EPOCHS)


def wait_for_the_other(tr: trek.Traveler, folder: str) -> int:
    """The worker that gets the first batch trains nothing else before the other one has trained most of the rest."""
    model = tr.add_model(Counting())
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    data = tr.add_loader((torch.arange(64),), global_batch_size=4)
    num_trained = 0
    for _ in tr.epochs(1):
        for (records,) in tr.train(data):
            if 0 in records.tolist():
                wait_until((Path(folder) / "trained 20").exists)
            tr.backward(model(records))
            tr.step(optimizer)
            num_trained += 1
            (Path(folder) / f"trained {num_trained}").touch()
    return tr.position.batches


@pytest.mark.campaign
def test_a_slow_worker_does_not_hold_the_others(tmp_path: Path) -> None:
    options = {"workers": 2, "servers": 1, "strategy": "ps", "show_progress": False}
    assert trek.run(wait_for_the_other, str(tmp_path), **options) == 16


def kill_a_server(tr: trek.Traveler, folder: str) -> Any:
    """Whoever comes first kills a server."""
    step = tr.optimization.step

    def killing(*args: Any, **named: Any) -> bool:
        place = Path(folder) / "killed"
        if tr.position.batches > 5 and not place.exists():
            place.touch()
            os.kill(tr.strategy.client.stats()[1]["pid"], signal.SIGKILL)  # type: ignore[attr-defined]
        return step(*args, **named)

    tr.optimization.step = killing  # type: ignore[method-assign]
    return train_counting(tr, folder, epochs=EPOCHS)


def test_a_killed_server_comes_back_for_workers_that_come_and_go(tmp_path: Path) -> None:
    result = trek.run(kill_a_server, str(tmp_path), workers=(1, 2), servers=2, strategy="ps", show_progress=False)
    check_counts(result, epochs=EPOCHS)


def push_late(tr: trek.Traveler, folder: str) -> Any:
    """The worker with the first batch pushes it when others have moved the version, and must compute it anew."""
    model = tr.add_model(Counting())
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    data = tr.add_loader((torch.arange(64),), global_batch_size=4)
    place, tries, logged = Path(folder), 0, []
    tr.journal.on_report = logged.append
    for _ in tr.epochs(1):
        for (records,) in tr.train(data):
            tr.backward(model(records) / tr.optimization.part[1])
            if 0 in records.tolist():
                tries += 1
                (place / f"try {tries}").touch()
                if tries == 1:
                    wait_until((place / "trained 20").exists)
            tr.step(optimizer)
            tr.log(count=1.0)
            (place / f"trained {len(list(place.glob('trained *'))) + 1}").touch()
    strategy: Any = tr.strategy
    ids, rows = strategy.client.export_rows("seen")
    return {"rejected": sum(one["rejected"] for one in strategy.client.stats()), "seen": [len(ids), rows.sum().item()]}


def test_a_push_that_is_too_old_is_computed_anew(tmp_path: Path) -> None:
    options = {"grads_to_wait": 2, "version_tolerance": 2}
    result = trek.run(
        push_late, str(tmp_path), workers=2, servers=2, strategy="ps", strategy_options=options, show_progress=False
    )
    assert result["rejected"] > 0
    assert (tmp_path / "try 2").exists()
    assert result["seen"] == [64, -32.0], "by the mean of two pushes, every row is lowered by half"


def test_a_mistake_in_the_settings_is_one_sentence_in_every_worker(capfd: pytest.CaptureFixture[str]) -> None:
    """Workers that failed before their Traveler was whole showed a traceback when they ended."""
    with pytest.raises(ConfigError, match=r"needs parameter servers\. Set servers=1"):
        trek.run(train_counting, "nowhere", workers=(1, 2), strategy="ps", show_progress=False)
    assert "Traceback" not in capfd.readouterr().err
