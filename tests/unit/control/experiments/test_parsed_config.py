"""The config of a stored experiment is parsed once, and again after it was changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trek.client import models
from trek.control.experiments.parsed_config import parsed_config
from trek.control.tables import ExperimentRow
from trek.experiments.config import ExperimentConfig

MakePlane = Callable[..., Any]


def read(plane: Any, number: int) -> ExperimentConfig:
    with plane.store.reading() as session:
        return parsed_config(session.get_one(ExperimentRow, number))


def test_rows_of_two_transactions_share_one_parsed_config(make_plane: MakePlane) -> None:
    plane = make_plane()
    number = plane.create(name="parsed-once")
    assert read(plane, number) is read(plane, number)
    assert read(plane, number).name == "parsed-once"


def test_a_changed_config_is_parsed_again(make_plane: MakePlane) -> None:
    plane = make_plane()
    number = plane.create()
    before = read(plane, number)
    plane.services.experiments.change(number, models.ChangeExperiment(priority=7, max_slots=3))
    after = read(plane, number)
    assert (before.resources.priority, before.resources.max_slots) == (None, None)
    assert (after.resources.priority, after.resources.max_slots) == (7, 3)
