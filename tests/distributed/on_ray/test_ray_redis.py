"""The control process of a head that keeps its state in a Redis, killed and started again while a search runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'trek-ml[ray]'")

from trek.testing.ray_redis import LastingHead, has_redis, lasting_head
from trek.testing.shell import Shell, wait_until

MODEL = Path(__file__).parents[2] / "e2e" / "model"
SPACE = {"learning_rate": {"type": "log", "minval": -3, "maxval": -1}, "global_batch_size": 32, "sleep_s": 0.1}
NUM_TRIALS, LENGTH, PERIOD = 4, 96, 8
SEARCH = {"name": "random", "metric": "validation_error", "max_trials": NUM_TRIALS, "max_length": {"batches": LENGTH}}


@pytest.fixture
def head(tmp_path: Path) -> Iterator[LastingHead]:
    with lasting_head(tmp_path, cpus=2) as made:
        yield made


@pytest.fixture
def shell(head: LastingHead, tmp_path: Path) -> Iterator[Shell]:
    variables = {"TREK_ENGINE": "ray", "RAY_ADDRESS": head.address, "TREK_SLOTS": ""}
    made = Shell(tmp_path / "own-home", tmp_path, MODEL, variables)
    yield made
    made.clean_up()


@pytest.mark.skipif(not has_redis(), reason="needs redis-server")
def test_a_search_goes_on_when_the_control_process_of_the_head_was_killed_and_is_back(
    head: LastingHead, shell: Shell
) -> None:
    done = shell.create(
        "--no-follow", "--json", hyperparameters=SPACE, searcher=SEARCH, min_validation_period={"batches": PERIOD}
    )
    assert done.returncode == 0, done.stderr
    experiment = str(json.loads(done.stdout)["id"])
    wait_until(lambda: sum(trial["batches"] > 0 for trial in shell.experiment(experiment)["trials"]) == 2)
    control_plane = shell.control_plane()
    head.kill_control_process()
    reported = _num_batches(shell, experiment)
    wait_until(lambda: _num_batches(shell, experiment) > reported)  # trials need no head while they train
    head.start_control_process()
    wait_until(lambda: shell.experiment(experiment)["state"] in ("completed", "errored"))
    assert shell.control_plane() == control_plane, "it stays up"
    trials = shell.experiment(experiment)["trials"]
    ends = [(trial["state"], trial["batches"], trial["restarts"], trial["run"]) for trial in trials]
    assert ends == [("completed", LENGTH, 0, 1)] * NUM_TRIALS
    for trial in trials:
        reports = shell.json("trial", "metrics", str(trial["id"]), "--group", "validation")
        assert [point["batches"] for point in reports] == [*range(PERIOD, LENGTH + 1, PERIOD)]


def _num_batches(shell: Shell, experiment: str) -> int:
    return sum(trial["batches"] for trial in shell.experiment(experiment)["trials"])
