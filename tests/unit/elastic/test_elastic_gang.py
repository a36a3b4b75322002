"""ElasticGang against a gang and a coordinator whose moments the test chooses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trek.elastic import elastic_gang
from trek.elastic.elastic_gang import ElasticGang
from trek.elastic.membership import MembershipSettings
from trek.engines import Exit, GangSpec

STATUS = {"num_training": 0, "changes": [], "failure": "", "is_over": False, "generation": 0, "put_out": []}


class Scene:
    """An engine with one gang of two workers, and their coordinator; `on_status` runs when that is asked."""

    secret, num_workers = "of this job", 2

    def __init__(self) -> None:
        self.pids = {0: 10, 1: 11}
        self.placements = [SimpleNamespace(role="coordinator")]
        self.restarted: list[int] = []
        self.on_status: Any = lambda: None

    def start(self, spec: GangSpec, *, on_line: Any, on_exit: Any) -> Scene:
        self.on_exit = on_exit
        return self

    def end(self, rank: int, code: int) -> None:
        self.on_exit(Exit(rank, "here", self.pids.pop(rank), code))

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        self.on_status()
        return {**STATUS, "members": [f"{rank}-x" for rank in self.pids], "num_missing": 2 - len(self.pids)}

    def addresses(self, role: str) -> list[str]:
        return ["127.0.0.1:1"]

    def wait(self, timeout_s: float) -> None:
        return None

    def restart(self, rank: int) -> None:
        self.restarted.append(rank)

    def stop(self, *, grace_s: float) -> None:
        return None


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene()
    client = SimpleNamespace(start=lambda: None, call=scene.call, close=lambda: None)
    monkeypatch.setattr(elastic_gang, "CoordinatorClient", lambda *args, **kwargs: client)
    return scene


def job_of(scene: Any) -> ElasticGang:
    return ElasticGang(scene, GangSpec(["x"], 2), MembershipSettings(min_workers=1, max_workers=2))


@pytest.mark.parametrize("code", [-9, 0])
def test_the_place_of_a_worker_that_was_killed_is_taken(scene: Scene, code: int) -> None:
    job = job_of(scene)
    scene.end(1, code)
    assert job.poll() is None
    job.close()
    assert scene.restarted == [1]


def test_a_worker_that_fails_while_the_coordinator_is_asked_keeps_its_place_and_its_error(scene: Scene) -> None:
    job = job_of(scene)
    scene.on_status = lambda: 0 in scene.pids and scene.end(0, 2)
    assert job.poll() is None  # it looked before the failure
    end = job.poll()
    job.close()
    assert scene.restarted == []
    assert end is not None
    assert (end.failed.code if end.failed else 0) == 2


def test_how_the_last_worker_ended_is_told_when_all_have_been_replaced(scene: Scene) -> None:
    job = job_of(scene)
    while (end := job.poll()) is None:
        scene.pids[1] = 11
        scene.end(1, -9)
        assert job.poll() is None
    job.close()
    assert scene.restarted
    assert "ended without joining" in end.reason
    assert (end.failed.code if end.failed else 0) == -9
