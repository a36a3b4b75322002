"""ElasticGang against a gang and a coordinator whose moments the test chooses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trek.elastic import elastic_gang
from trek.elastic.elastic_gang import ElasticGang, JobEnd
from trek.elastic.membership_settings import MembershipSettings
from trek.engines import Exit, GangSpec
from trek.testing.clock import FakeClock

STATUS = {
    "num_training": 0,
    "num_advances": 0,
    "changes": [],
    "failure": "",
    "is_over": False,
    "generation": 0,
    "put_out": [],
}


class Scene:
    """An engine with one gang of two workers, and their coordinator; `on_status` runs when that is asked."""

    secret, num_workers = "of this job", 2

    def __init__(self) -> None:
        self.pids = {0: 10, 1: 11}
        self.placements = [SimpleNamespace(role="coordinator")]
        self.restarted: list[int] = []
        self.killed: list[int] = []
        self.members: dict[str, str] | None = None
        """By default, whoever has a process trains."""
        self.former: list[str] = []
        self.status: dict[str, Any] = {}
        self.clock = FakeClock()
        self.on_status: Any = lambda: None

    def start(self, spec: GangSpec, *, on_line: Any, on_exit: Any) -> Scene:
        self.on_exit = on_exit
        return self

    def end(self, rank: int, code: int) -> None:
        self.on_exit(Exit(rank, "here", self.pids.pop(rank), code))

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        self.on_status()
        members = {f"{rank}-x": "training" for rank in self.pids} if self.members is None else self.members
        num_missing = 2 - len(members)
        return {**STATUS, "members": members, "former": self.former, "num_missing": num_missing, **self.status}

    def addresses(self, role: str) -> list[str]:
        return ["127.0.0.1:1"]

    def wait(self, timeout_s: float) -> list[Exit] | None:
        return None if self.placements else []

    def restart(self, rank: int) -> None:
        self.restarted.append(rank)
        self.pids[rank] = 100 + len(self.restarted)

    def kill(self, rank: int) -> None:
        self.killed.append(rank)

    def stop(self, *, grace_s: float) -> None:
        return None


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene()
    client = SimpleNamespace(start=lambda: None, call=scene.call, close=lambda: None)
    monkeypatch.setattr(elastic_gang, "CoordinatorClient", lambda *args, **kwargs: client)
    return scene


def job_of(scene: Any, *, least: int = 1) -> ElasticGang:
    settings = MembershipSettings(min_workers=least, max_workers=2)
    return ElasticGang(scene, GangSpec(["x"], 2), settings, clock=scene.clock)


@pytest.mark.parametrize("code", [-9, 0])
def test_the_place_of_a_member_that_was_killed_or_left_is_taken(scene: Scene, code: int) -> None:
    job = job_of(scene)
    scene.end(1, code)
    scene.former = ["1-x"]
    assert job.poll() is None
    job.close()
    assert scene.restarted == [1]


def test_a_program_without_a_traveler_runs_once_in_every_worker(scene: Scene) -> None:
    """It was started again and again, until the job failed."""
    scene.members = {}
    job = job_of(scene)
    scene.end(1, 0)
    assert [job.poll(), job.poll()] == [None, None]
    scene.end(0, 0)
    assert job.poll() == JobEnd(num_apart=2)
    job.close()
    assert scene.restarted == []


def test_a_job_that_needs_a_worker_which_ended_without_joining_fails(scene: Scene) -> None:
    scene.members = {"0-x": "ready"}
    job = job_of(scene, least=2)
    scene.end(1, 0)
    end = job.poll()
    job.close()
    assert end is not None
    assert "1 of its workers ended without having joined the others" in end.reason


def test_a_worker_that_replaced_a_member_and_never_joined_is_apart_too(scene: Scene) -> None:
    scene.members = {"0-x": "training"}
    scene.former = ["1-x"]
    job = job_of(scene)
    scene.end(1, -9)
    job.poll()
    assert scene.restarted == [1]
    scene.end(1, 0)
    assert [job.poll(), job.poll()] == [None, None]
    job.close()
    assert scene.restarted == [1]


def test_a_member_that_hangs_when_the_job_is_over_is_killed(scene: Scene) -> None:
    job = job_of(scene)
    job.poll()
    scene.status = {"is_over": True, "put_out": ["1-x"]}
    assert job.poll() is None
    job.close()
    assert scene.killed == [1]


def test_a_worker_that_fails_while_the_coordinator_is_asked_keeps_its_place_and_its_error(scene: Scene) -> None:
    job = job_of(scene)
    scene.on_status = lambda: 0 in scene.pids and scene.end(0, 2)
    assert job.poll() is None  # it looked before the failure
    end = job.poll()
    job.close()
    assert scene.restarted == []
    assert end is not None
    assert (end.failed.code if end.failed else 0) == 2


def test_a_job_whose_processes_were_all_killed_at_once_has_not_succeeded(scene: Scene) -> None:
    job = job_of(scene)
    scene.end(0, -9)
    scene.end(1, -9)
    scene.placements.clear()
    end = job.poll()
    job.close()
    assert end is not None
    assert end.reason == "all of its processes were killed at once, the coordinator too"


@pytest.mark.parametrize(("codes", "code"), [((-9, 0), 0), ((0, -9), 0), ((-9, -9), -9)])
def test_a_program_is_complete_if_one_worker_came_to_its_end_after_the_training(
    scene: Scene, codes: tuple[int, int], code: int
) -> None:
    scene.members, scene.former, scene.status = {}, ["0-x", "1-x"], {"is_over": True}
    job = job_of(scene)
    for rank in range(2):
        scene.end(rank, codes[rank])
    end = job.poll()
    job.close()
    assert end is not None
    assert (end.failed.code if end.failed else 0) == code


def test_a_worker_that_hangs_while_it_starts_does_not_hold_up_the_end(scene: Scene) -> None:
    """Those that have trained may take as long as they like after it."""
    scene.members, scene.former, scene.status = {}, ["0-x"], {"is_over": True}
    job = job_of(scene)
    job.poll()
    scene.clock.advance(30)
    job.poll()
    assert scene.killed == []
    scene.clock.advance(1)
    job.poll()
    job.close()
    assert scene.killed == [1]


def kill_starting_worker(job: ElasticGang, scene: Scene, *, code: int = -9) -> JobEnd | None:
    if 1 not in scene.pids:
        job.poll()
    if 1 in scene.pids:
        scene.end(1, code)
    return job.poll()


def test_workers_that_are_killed_before_they_join_are_replaced_for_minutes_and_then_end_the_job(scene: Scene) -> None:
    """A busy machine, or a stream of kills, is no crash loop."""
    scene.members = {}
    job = job_of(scene)
    waited_s = 0
    while (end := kill_starting_worker(job, scene)) is None:
        scene.clock.advance(5)
        waited_s += 5
    job.close()
    assert 300 < waited_s < 320
    assert "workers were killed before they joined the others, for 305 s" in end.reason
    assert (end.failed.code if end.failed else 0) == -9
    assert 7 < len(scene.restarted) < 20, "after a while, they are not started at once"


def test_workers_that_are_killed_before_they_join_end_no_job_that_trains(scene: Scene) -> None:
    scene.members = {"0-x": "training"}
    scene.status = {"num_training": 1}
    job = job_of(scene)
    for _ in range(200):
        assert kill_starting_worker(job, scene) is None
        scene.clock.advance(5)
    job.close()


def test_a_program_that_crashes_at_its_start_ends_the_job_at_once(scene: Scene) -> None:
    job = job_of(scene)
    while (end := kill_starting_worker(job, scene, code=-11)) is None:
        assert len(scene.restarted) < 10
    job.close()
    assert end.failed is not None
    assert end.failed.code == -11
