"""Runs of flows: saved as often as told, and read from the home where they were run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

import trek
from trek.client.flow_models import FlowNode, FlowRunDetails, FlowStep
from trek.control.flows.flow_service import SILENCE_S
from trek.control.services import Services
from trek.control.store import _MIGRATIONS
from trek.errors import InputError, NotFound
from trek.testing.clock import FakeClock

MakePlane = Callable[..., Any]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def plane(make_plane: MakePlane, clock: FakeClock) -> Any:
    return make_plane(clock=clock)


@pytest.fixture
def services(plane: Any) -> Services:
    made: Services = plane.services
    return made


def record(*states: str, run: str = "r1", started_s: float = 1.0, **fields: Any) -> FlowRunDetails:
    steps = [
        FlowStep(
            name=f"step{i}", state=state, reason="new", seconds=0.5, error="no luck" if state == "failed" else None
        )
        for i, state in enumerate(states)
    ]
    graph = [FlowNode(name=step.name) for step in steps]
    told = {"state": "running", **fields}
    return FlowRunDetails(id=run, flow="f", started_s=started_s, graph=graph, steps=steps, **told)


def save(services: Services, told: FlowRunDetails, *, owner: str = "ed") -> None:
    services.flows.save(told.flow, told.id, told, owner=owner)


def test_a_run_is_given_back_as_it_was_told(services: Services) -> None:
    told = record("done", "failed", params={"lr": 0.1}, source="flow.py")
    save(services, told)
    expected = {"owner": "ed", "num_steps": {"done": 1, "failed": 1}, "error": "no luck"}
    assert services.flows.run("f", "r1") == told.model_copy(update=expected)


def test_telling_the_same_twice_changes_nothing(services: Services) -> None:
    save(services, record("done", "running"))
    first = services.flows.run("f", "r1")
    save(services, record("done", "running"))
    assert services.flows.run("f", "r1") == first
    assert services.flows.all()[0].num_runs == 1


def test_a_later_word_replaces_the_earlier_one_step_by_step(services: Services) -> None:
    save(services, record("done", "running", "pending"))
    save(services, record("done", "done", state="done", ended_s=2.0))
    found = services.flows.run("f", "r1")
    assert [step.state for step in found.steps] == ["done", "done"]
    assert (found.state, found.ended_s, found.num_steps) == ("done", 2.0, {"done": 2})


def test_thousands_of_steps_are_saved_and_changed(services: Services) -> None:
    save(services, record(*["pending"] * 2000))
    save(services, record(*["done"] * 2001))
    assert services.flows.run("f", "r1").num_steps == {"done": 2001}
    assert [step.name for step in services.flows.run("f", "r1").steps] == [f"step{i}" for i in range(2001)]


def test_the_first_to_tell_of_a_run_owns_it(services: Services) -> None:
    save(services, record("running"), owner="ed")
    save(services, record("done"), owner="ann")
    assert services.flows.owner("f", "r1") == "ed"


def test_runs_are_listed_the_newest_first(services: Services) -> None:
    for number in (1, 3, 2):
        save(services, record("done", run=f"r{number}", started_s=float(number)))
    assert [run.id for run in services.flows.runs("f")] == ["r3", "r2", "r1"]
    assert services.flows.all()[0].last_run.id == "r3"


def test_a_run_that_no_longer_reports_is_interrupted(services: Services, clock: FakeClock) -> None:
    save(services, record("running"))
    assert services.flows.run("f", "r1").state == "running"
    clock.advance(SILENCE_S + 1)
    assert services.flows.run("f", "r1").state == "interrupted"
    assert services.flows.all()[0].last_run.state == "interrupted"


def test_runs_of_the_home_are_there_without_being_told(
    services: Services, plane: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREK_HOME", str(plane.layout.home))
    flow = trek.Flow("own")
    flow.command("greet", ["echo", "hello"])
    run = flow.run(show=False)
    assert [(one.name, one.last_run.state) for one in services.flows.all()] == [("own", "done")]
    assert [step.state for step in services.flows.run("own", run.id).steps] == ["done"]
    save(services, FlowRunDetails(id=run.id, flow="own", state="failed", started_s=0.0), owner="ann")
    found = services.flows.run("own", run.id)
    assert (found.state, found.owner) == ("done", "ann")
    assert [(one.id, one.state) for one in services.flows.runs("own")] == [(run.id, "done")]


def test_what_a_step_wrote_is_read_where_its_run_lies(
    services: Services, plane: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREK_HOME", str(plane.layout.home))
    flow = trek.Flow("own")
    flow.command("greet", ["echo", "hello"])
    run = flow.run(show=False)
    assert services.flows.log("own", run.id, step="greet") == "hello\n"
    with pytest.raises(NotFound, match="has no step 'leave'"):
        services.flows.log("own", run.id, step="leave")
    save(services, record("done"))
    with pytest.raises(NotFound, match="are on the machine that ran it"):
        services.flows.log("f", "r1", step=services.flows.run("f", "r1").steps[0].name)


def test_what_is_not_there_is_named(services: Services) -> None:
    with pytest.raises(NotFound, match="no flow 'f' has been run"):
        services.flows.runs("f")
    save(services, record("done"))
    with pytest.raises(NotFound, match="flow 'f' has no run"):
        services.flows.run("f", "../r1")


def test_a_body_of_another_run_is_refused(services: Services) -> None:
    with pytest.raises(InputError, match="the body describes run 'r1'"):
        services.flows.save("f", "r2", record("done"), owner="ed")


def test_the_migrations_have_one_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    assert len(ScriptDirectory.from_config(config).get_heads()) == 1
