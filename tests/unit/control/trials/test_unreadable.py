"""An experiment whose stored config can no longer be read ends, and holds up nobody else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from trek.control.tables import ExperimentRow

MakePlane = Callable[..., Any]


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "change",
    [
        {"hyperparameters": {"x": {"type": "integer", "minval": 1, "maxval": 2}}},
        {"hyperparameters": deep(900)},
        {"name": "\ud800"},
        None,
    ],
)
def test_it_is_ended_at_the_start_and_others_run(make_plane: MakePlane, change: dict[str, Any] | None) -> None:
    # Its trial was started again and again, or the supervisor's thread ended.
    plane = make_plane()
    bad, good = plane.create(), plane.create()
    with plane.store.writing() as session:
        config = {} if change is None else {**session.get_one(ExperimentRow, bad).config, **change}
        session.execute(update(ExperimentRow).where(ExperimentRow.id == bad).values(config=config))
    plane.supervisor.start()
    try:
        deadline = time.monotonic() + 240
        while plane.services.experiments.get(good).state != "completed":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        details = plane.services.experiments.get(bad)
        assert details.state == "errored"
        assert plane.services.experiments.all()[-1].id == bad
    finally:
        plane.supervisor.stop()
    plane.services.experiments.delete(bad)
    assert [one.id for one in plane.services.experiments.all()] == [good]
