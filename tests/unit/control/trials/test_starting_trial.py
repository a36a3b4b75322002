"""Gangs that wait for room on a cluster: others go on meanwhile, and what waits can be killed, paused and put back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trek.client import models
from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store
from trek.control.trials.supervisor import MAX_STARTING, Supervisor
from trek.engines import GangSpec
from trek.engines.pending_starts import PendingStarts
from trek.errors import NoRoom, OutsideError
from trek.experiments.package import pack
from trek.system.clock import SystemClock
from trek.testing.shell import wait_until
from trek.testing.simulated_engine import SimulatedEngine, SimulatedGang

BROKEN, CROWDED, FULL, LIMITED = "broken", "crowded", "full", "limited"


class CrowdedEngine(SimulatedEngine):
    """What the environment variable SORT of a gang says happens to its start; `room` lets those that wait go on."""

    def __init__(self) -> None:
        super().__init__(num_nodes=10, slots_per_node=20)
        self._pending = PendingStarts()
        self.room = threading.Event()
        self.num_waiting = 0

    def start(self, spec: GangSpec, **callbacks: Any) -> SimulatedGang:
        """Wait, fail or start."""
        sort = spec.env.get("SORT")
        if sort == BROKEN:
            raise ZeroDivisionError("by a plug-in")
        if sort in (FULL, LIMITED):
            raise NoRoom("the cluster had no room.", is_own_limit=sort == LIMITED)
        with self._pending.begin(self.handle_of(spec)) as pending:
            pending.waits_for = "waits for a node"
            self.num_waiting += 1
            while sort == CROWDED and not self.room.wait(0.01):
                pending.check()
        return super().start(spec, **callbacks)

    def handle_of(self, spec: GangSpec) -> str | None:
        """As engines have it whose gangs outlive them."""
        return str(spec.output_dir)

    def start_waits_for(self, handle: str) -> str:
        """As `PendingStarts` has it."""
        return self._pending.waits_for(handle)

    def cancel_start(self, handle: str) -> None:
        """As `PendingStarts` has it."""
        self._pending.cancel(handle)


@dataclass
class Plane:
    """A control plane without HTTP."""

    engine: CrowdedEngine
    supervisor: Supervisor
    services: Services
    archive: str

    def create(self, sort: str = "", **changes: Any) -> int:
        """An experiment of one trial whose gang is of that sort."""
        config = {
            "name": "crowded",
            "entrypoint": "model_def:Tiny",
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
            "environment": {"environment_variables": {"SORT": sort}},
            **changes,
        }
        return self.services.experiments.create(models.CreateExperiment(config=config, archive=self.archive)).id

    def trial(self, experiment: int) -> models.Trial:
        """Its first trial."""
        return self.services.experiments.get(experiment).trials[0]

    def run_until(self, is_true: Callable[[], object]) -> None:
        """Rounds of the supervisor."""
        wait_until(lambda: (self.supervisor.tick(), is_true())[1])

    def is_running(self, experiment: int) -> bool:
        """Whether its trial has a gang."""
        return self.trial(experiment).id in self.supervisor.running


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    home, model = tmp_path / "home", tmp_path / "model"
    home.mkdir(mode=0o700)
    model.mkdir()
    (model / "model_def.py").write_text("class Tiny: ...")
    engine, store, layout, package = CrowdedEngine(), Store.at(home), Layout(home), pack(model)
    supervisor = Supervisor(store, layout=layout, engine=engine, environment=lambda trial, run: {}, clock=SystemClock())
    services = Services.over(store, layout=layout, runner=supervisor, clock=SystemClock())
    services.archives.put(package.data, sha256=package.sha256)
    yield Plane(engine, supervisor, services, package.sha256)
    engine.room.set()
    supervisor._end_starts()
    store.close()


def test_a_trial_that_waits_for_room_holds_up_nobody(plane: Plane) -> None:
    waiting, other = plane.create(CROWDED), plane.create()
    plane.run_until(lambda: plane.is_running(other) and plane.trial(waiting).waiting)
    assert (plane.trial(waiting).state, plane.trial(waiting).waiting) == ("running", "waits for a node")
    plane.engine.room.set()
    plane.run_until(lambda: plane.is_running(waiting))
    plane.run_until(lambda: not plane.trial(waiting).waiting)
    assert plane.trial(waiting).run == 1


def test_slots_of_a_trial_that_waits_for_room_are_taken(plane: Plane) -> None:
    plane.create(CROWDED, resources={"slots_per_trial": 150})
    large = plane.create(resources={"slots_per_trial": 100})
    plane.run_until(lambda: plane.trial(large).waiting)
    assert plane.trial(large).waiting == "needs 100 slots, 50 free, 1st in queue"
    assert plane.supervisor.free_slots == 50


def test_a_trial_that_waits_for_room_can_be_killed(plane: Plane) -> None:
    waiting = plane.create(CROWDED)
    plane.run_until(lambda: plane.trial(waiting).waiting)
    plane.services.experiments.kill(waiting)
    plane.run_until(lambda: plane.services.experiments.get(waiting).state == "killed")
    assert not plane.engine.gangs


def test_a_trial_that_waits_for_room_can_be_paused_and_activated(plane: Plane) -> None:
    waiting = plane.create(CROWDED)
    plane.run_until(lambda: plane.trial(waiting).waiting)
    plane.services.experiments.pause(waiting)
    plane.run_until(lambda: plane.services.experiments.get(waiting).state == "paused")
    plane.engine.room.set()
    plane.services.experiments.activate(waiting)
    plane.run_until(lambda: plane.is_running(waiting))
    assert plane.trial(waiting).restarts == 0


def test_a_trial_without_room_goes_back_to_the_queue_and_is_not_restarted(plane: Plane) -> None:
    full = plane.create(FULL)
    plane.run_until(lambda: plane.trial(full).run > 2)
    assert plane.trial(full).restarts == 0
    assert plane.trial(full).error == ""


def test_a_trial_without_room_for_as_long_as_the_user_said_fails_as_others_do(plane: Plane) -> None:
    limited = plane.create(LIMITED, max_restarts=0)
    plane.run_until(lambda: plane.trial(limited).state == "errored")
    assert plane.trial(limited).error == "the cluster had no room."


def test_what_an_engine_raises_ends_the_run_and_not_the_supervisor(plane: Plane) -> None:
    broken, other = plane.create(BROKEN, max_restarts=0), plane.create()
    plane.run_until(lambda: plane.trial(broken).state == "errored" and plane.is_running(other))
    assert plane.trial(broken).error == "the trial could not be started: ZeroDivisionError: by a plug-in"


def test_a_supervisor_that_stops_puts_what_waits_for_room_back(plane: Plane) -> None:
    waiting = plane.create(CROWDED)
    plane.run_until(lambda: plane.trial(waiting).waiting)
    plane.supervisor.start()
    plane.supervisor.stop(grace_s=0)
    assert (plane.trial(waiting).state, plane.trial(waiting).restarts) == ("queued", 0)
    assert not plane.engine.gangs


def test_a_bounded_number_of_gangs_is_started_at_once(plane: Plane) -> None:
    for _ in range(MAX_STARTING + 3):
        plane.create(CROWDED)
    plane.run_until(lambda: plane.engine.num_waiting == MAX_STARTING)
    plane.supervisor.tick()
    assert plane.engine.num_waiting == MAX_STARTING
    plane.engine.room.set()
    plane.run_until(lambda: len(plane.supervisor.running) == MAX_STARTING + 3)


def test_a_start_without_a_handle_is_nobodys_to_cancel() -> None:
    starts = PendingStarts()
    with starts.begin(None) as pending:
        starts.cancel(None)
        pending.check()
    with starts.begin("one") as pending:
        starts.cancel("one")
        with pytest.raises(OutsideError, match="cancelled"):
            pending.check()
    assert starts.waits_for("one") == ""
