"""`kill -9` of the control plane, of trials and of their agents at seeded moments of a search.

Real processes of the operating system: the control plane is a daemon that is started again after each of its deaths,
trials train with torch. The search must come to the end that nobody disturbed: every trial once to every rung, every
row of every metric once and to the bit, and the same decisions where they do not hang on timing.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from trek.client import models
from trek.client.client import Client
from trek.client.embedded import read_address, running_address
from trek.errors import TrekError
from trek.search import preview
from trek.testing.shell import Shell, wait_until

MODEL = Path(__file__).parent / "model"
# Of two trials the better goes on from 5 batches to 10, whoever comes first.
SMALL = {
    "name": "asha",
    "metric": "validation_error",
    "max_length": {"batches": 10},
    "max_trials": 2,
    "num_rungs": 2,
    "divisor": 2,
    "promote": True,
}
# Rounds wait for all their trials, so who goes on hangs on metrics alone: 21, 7 and 3 trials, rungs of 4, 18 and 81.
LARGE = {"name": "hyperband", "metric": "validation_error", "max_length": {"batches": 81}, "divisor": 4.5}
ADAPTIVE = {**LARGE, "name": "adaptive_asha", "divisor": 4, "max_trials": 30}
SPACE = {"learning_rate": {"type": "log", "minval": -4, "maxval": -1}, "global_batch_size": 32}


@dataclass
class Ended:
    """What is left of one trial of a search: its state, the rungs it came to, and its rows."""

    state: str
    length: int
    hparams: dict[str, Any]
    num_done: int
    """Runs that said they had come to their length."""
    rows: list[tuple[str, int, dict[str, float | None]]]


@dataclass
class Disturbed:
    """A home whose processes are killed as the seed says, while its search goes on."""

    shell: Shell
    seed: int
    most_wait_s: float
    sleep_s: float
    """How long a batch takes at least."""
    kills: Counter[str] = field(default_factory=Counter)
    _daemon: subprocess.Popen[bytes] | None = None

    def search(self, searcher: dict[str, Any], *, num_kills: int) -> models.ExperimentDetails:
        """Run a search to its end, with `num_kills` deaths on the way."""
        rng = random.Random(self.seed)
        number = self._create(searcher)
        while (ended := self._ended(number)) is None or self.kills.total() < num_kills:
            assert ended is None, f"the search was over after {self.kills.total()} of {num_kills} deaths"
            time.sleep(rng.uniform(0.05, self.most_wait_s))
            if self.kills.total() < num_kills:
                self._kill(rng)
            self._see_to_the_daemon()
        return ended

    def trials(self, details: models.ExperimentDetails) -> dict[int, Ended]:
        """What is left of each trial, by the Searcher's key of it."""
        client = self._client()
        assert client is not None
        with client:
            return {trial.key: self._ended_trial(client, trial) for trial in details.trials}

    def close(self) -> None:
        """Stop the daemon with all it runs."""
        self.shell.clean_up()
        if self._daemon is not None:
            self._daemon.wait(30)

    def _create(self, searcher: dict[str, Any]) -> int:
        self._see_to_the_daemon()
        wait_until(lambda: running_address(self.shell.home) is not None)
        done = self.shell.create(
            "--no-follow",
            "--json",
            hyperparameters={**SPACE, "sleep_s": self.sleep_s},
            searcher=searcher,
            max_restarts=1000,
            scheduling_unit=1,
            min_validation_period={"batches": 2},
            min_checkpoint_period={"batches": 2},
        )
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["id"])

    def _kill(self, rng: random.Random) -> None:
        """Choose among who is alive now; the control plane as often as all others together."""
        victims = self._victims()
        kind = rng.choice(["control plane", rng.choice(["trial", "trial", "agent"])])
        if kind in victims:
            with contextlib.suppress(ProcessLookupError):  # it may have come to its end just now
                os.kill(rng.choice(victims[kind]), signal.SIGKILL)
                self.kills[kind] += 1

    def _victims(self) -> dict[str, list[int]]:
        marks = {"control plane": "trek.master.daemon", "trial": "trek.experiments.trial_worker", "agent": "agent.py"}
        found: dict[str, list[int]] = {}
        for process in self.shell.processes():
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())
                for kind in (kind for kind, mark in marks.items() if mark in words):
                    found.setdefault(kind, []).append(process.pid)
        return found

    def _see_to_the_daemon(self) -> None:
        if self._daemon is not None and self._daemon.poll() is None:
            return
        with (self.shell.folder / "daemon.log").open("ab") as log:
            command = [sys.executable, "-m", "trek.master.daemon", "--home", str(self.shell.home)]
            self._daemon = subprocess.Popen(command, env=self.shell.env, stdout=log, stderr=log, start_new_session=True)

    def _client(self) -> Client | None:
        address = read_address(self.shell.home / "control.json")
        return Client(address) if address is not None else None

    def _ended(self, number: int) -> models.ExperimentDetails | None:
        """The experiment, once it has ended; None too while nobody answers."""
        client = self._client()
        if client is None:
            return None
        with client, contextlib.suppress(TrekError):
            details = client.experiment(number)
            return details if details.state in models.ENDED else None
        return None

    def _ended_trial(self, client: Client, trial: models.TrialRecord) -> Ended:
        outcomes = self.shell.home.glob(f"trials/{trial.id}-*/run_*/rank_0/outcome.json")
        told = [json.loads(path.read_text()) for path in outcomes]
        return Ended(
            state=trial.state,
            length=trial.length["batches"],
            hparams=trial.hparams,
            num_done=sum(one["kind"] == "done" and not one["stop_reason"] for one in told),
            rows=[(point.group, point.batches, _repeatable(point)) for point in client.trial_metrics(trial.id)],
        )


def _repeatable(point: models.MetricPoint) -> dict[str, float | None]:
    """The values of a row; how fast it went is nobody's to repeat."""
    return {} if point.group == "system" else point.metrics


def play(
    folder: Path,
    searcher: dict[str, Any],
    *,
    seed: int = 0,
    num_kills: int = 0,
    most_wait_s: float = 2.0,
    sleep_s: float = 0.02,
) -> Any:
    """A search in a home of its own; returns the experiment and its trials."""
    folder.mkdir()
    home = Disturbed(Shell(folder / "home", folder, MODEL), seed=seed, most_wait_s=most_wait_s, sleep_s=sleep_s)
    try:
        details = home.search(searcher, num_kills=num_kills)
        print(f"deaths: {dict(home.kills)}, runs: {sum(trial.run for trial in details.trials)}")
        return details, home.trials(details)
    finally:
        home.close()


def check_whole(details: models.ExperimentDetails, trials: dict[int, Ended]) -> None:
    """Nothing lost, nothing twice, whatever was decided."""
    assert details.state == "completed"
    assert {trial.state for trial in trials.values()} == {"completed"}
    for key, trial in trials.items():
        for group in ("training", "validation"):
            at = [batches for name, batches, _ in trial.rows if name == group]
            period = 1 if group == "training" else 2
            expected = sorted({*range(period, trial.length + 1, period), trial.length} & set(range(1, at[-1] + 1)))
            assert set(expected) <= set(at), f"trial {key} misses {group} rows"
            assert len(at) == len(set(at)), f"trial {key} has {group} rows twice"


def check_same(calm: tuple[Any, dict[int, Ended]], wild: tuple[Any, dict[int, Ended]]) -> None:
    """The same trials to the same rungs, each rung once, with the same rows to the bit."""
    for key, trial in calm[1].items():
        assert wild[1][key] == trial, f"trial {key}"
    assert wild[1].keys() == calm[1].keys()
    assert (wild[0].best_trial, wild[0].best_metric) == (calm[0].best_trial, calm[0].best_metric)


def test_a_search_comes_to_the_same_end_however_often_it_is_killed(tmp_path: Path) -> None:
    calm = play(tmp_path / "calm", SMALL, sleep_s=0.4)
    wild = play(tmp_path / "wild", SMALL, seed=1, num_kills=6, most_wait_s=1.5, sleep_s=0.4)
    check_whole(*wild)
    check_same(calm, wild)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_hundred_deaths_change_nothing_of_a_search_of_thirty_trials(tmp_path: Path) -> None:
    calm = play(tmp_path / "calm", LARGE, sleep_s=0.5)
    assert len(calm[1]) >= 30
    for seed in range(2):
        wild = play(tmp_path / f"wild-{seed}", LARGE, seed=seed, num_kills=100, sleep_s=0.5)
        check_whole(*wild)
        check_same(calm, wild)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_hundred_deaths_lose_nothing_of_an_asynchronous_search(tmp_path: Path) -> None:
    """Who comes first to a rung hangs on timing here, so the decisions may differ; nothing else may."""
    calm = play(tmp_path / "calm", ADAPTIVE, sleep_s=0.5)
    wild = play(tmp_path / "wild", ADAPTIVE, seed=7, num_kills=100, sleep_s=0.5)
    check_whole(*wild)
    assert len(wild[1]) == len(calm[1]) == sum(row["trials"] for row in preview(wild[0].config))
    for key, trial in wild[1].items():
        assert trial.hparams == calm[1][key].hparams
        assert trial.num_done <= 1, "no trial is trained to its end twice"
        known = {(group, at): values for group, at, values in calm[1][key].rows}
        assert all(known.get((group, at), values) == values for group, at, values in trial.rows)
