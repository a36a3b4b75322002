"""A control plane without HTTP, whose trials are small scripts, moved on by hand."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trek.client import models
from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import TrialRow
from trek.control.trials.supervisor import Supervisor
from trek.engines.local import LocalEngine
from trek.experiments.package import pack
from trek.system.clock import Clock, SystemClock
from trek.testing.control_parts import open_store
from trek.testing.postgres import can_run_postgres, postgres

CONFIG: dict[str, Any] = {
    "name": "tiny",
    "entrypoint": "model_def:Tiny",
    "hyperparameters": {"lr": 0.1},
    "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 100}},
}
# A trial's process is a script in this language; `outcome` leaves word as the real one does.
_PRELUDE = """
import json, os, sys, time
folder, rank = os.environ["TREK_MEMBER_DIR"], int(os.environ["RANK"])
run, run_dir = int(os.environ["TREK_RUN"]), os.environ["TREK_RUN_DIR"]
uuid, plane_home = os.environ.get("TRIAL_UUID"), run_dir.rpartition("/trials/")[0]
def outcome(kind, message="", stop_reason=""):
    told = {"rank": rank, "kind": kind, "message": message, "traceback": "", "stop_reason": stop_reason}
    with open(f"{folder}/outcome.json", "w") as file: json.dump({**told, "time_s": time.time()}, file)
    sys.exit({"done": 0, "user": 1, "input": 2, "outside": 3, "rejected": 0}[kind])
"""


@dataclass
class Plane:
    """Store, supervisor and services of one home."""

    store: Store
    layout: Layout
    supervisor: Supervisor
    services: Services
    archive: str

    def create(self, **changes: Any) -> int:
        """Create an experiment; returns its id."""
        request = models.CreateExperiment(config={**CONFIG, **changes}, archive=self.archive)
        return self.services.experiments.create(request).id

    def trial(self, trial_id: int = 1) -> TrialRow:
        """The row of a trial."""
        with self.store.reading() as session:
            return session.get_one(TrialRow, trial_id)

    def run_until(self, is_true: Callable[[], bool], *, timeout_s: float = 240) -> None:
        """Move on until something is so."""
        deadline = time.monotonic() + timeout_s
        while not is_true():
            assert time.monotonic() < deadline, "it did not happen in time"
            self.supervisor.tick()
            time.sleep(0.01)

    def run_to_end(self, experiment_id: int) -> models.ExperimentDetails:
        """Move on until the experiment has ended."""
        self.run_until(lambda: self.services.experiments.get(experiment_id).state in models.ENDED)
        return self.services.experiments.get(experiment_id)


MakePlane = Callable[..., Plane]


def _uuid(store: Store, trial_id: int) -> str:
    with store.reading() as session:
        return session.get_one(TrialRow, trial_id).uuid


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a database on a PostgreSQL server; skips where there is none."""
    if not can_run_postgres():
        pytest.skip("no PostgreSQL here")
    with postgres() as url:
        yield url


@pytest.fixture
def make_plane(tmp_path: Path) -> Iterator[MakePlane]:
    """Makes planes over one home; `script` is what a trial's process does."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "model_def.py").write_text("class Tiny: ...")
    package = pack(model)
    made: list[Plane] = []

    def make(
        script: str = "outcome('done')",
        *,
        slots: int = 2,
        url: str | None = None,
        clock: Clock | None = None,
        environment: Mapping[str, str] | None = None,
        private_variables: Sequence[str] = (),
    ) -> Plane:
        home = tmp_path / "control-home"
        home.mkdir(exist_ok=True)
        store = Store(url) if url is not None else open_store(home)
        layout, clock = Layout(home), clock or SystemClock()
        supervisor = Supervisor(
            store,
            layout=layout,
            engine=LocalEngine(),
            slots=slots,
            environment=lambda trial, run: {"TRIAL_UUID": _uuid(store, trial), **(environment or {})},
            private_variables=private_variables,
            clock=clock,
            command=[sys.executable, "-S", "-c", _PRELUDE + script],
        )
        services = Services.over(store, layout=layout, runner=supervisor, clock=clock)
        services.archives.put(package.data, sha256=package.sha256)
        made.append(Plane(store, layout, supervisor, services, package.sha256))
        return made[-1]

    yield make
    for plane in made:
        for running in plane.supervisor.running.values():
            running.stop(grace_s=0)
            running.gang.stop(grace_s=0)
            running.join()
        plane.store.close()
