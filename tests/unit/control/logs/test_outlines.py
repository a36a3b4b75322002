"""Outlines: extended by new lines, made anew after deletions, and always what a fresh look gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, insert

from trek.control.logs.log_service import LogService
from trek.control.logs.query import LogSearch
from trek.control.store import Store
from trek.control.tables import ExperimentRow, LogTable, TrialRow
from trek.testing.control_parts import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    with made.writing() as session:
        session.add(ExperimentRow(name="e", config={}, archive="", created_s=0.0))
        session.flush()
        session.add_all(
            TrialRow(experiment_id=1, key=key, hparams={}, seed=0, length=1, created_s=0.0) for key in range(2)
        )
    yield made
    made.close()


def test_an_extended_outline_is_what_a_fresh_look_gives(store: Store) -> None:
    generator = random.Random(7)
    service, position = LogService(store), 0
    searches = [LogSearch(), LogSearch(level="error"), LogSearch(text="7"), LogSearch(rank=1)]
    for step in range(12):
        rows = []
        for _ in range(generator.choice([0, 1, 400, 1500])):
            position += 1
            is_traceback = generator.random() < 0.01
            rows.append({
                "trial_id": 1 + position % 2, "run": 1, "rank": position % 3, "position": position,
                "time_s": float(position), "level": generator.choice([20, 40]),
                "text": "Traceback (most recent call last):" if is_traceback else f"line {position}",
            })  # fmt: skip
        with store.writing() as session:
            if rows:
                session.execute(insert(LogTable), rows)
            if step % 5 == 4:
                session.execute(delete(LogTable).where(LogTable.time_s < position / 3))
        for search in searches:
            for owner in ({"trial_id": 1}, {"trial_id": 2}, {"experiment_id": 1}):
                assert service.outline(**owner, search=search) == LogService(store).outline(**owner, search=search)
    outline = service.outline(experiment_id=1)
    lines = service.read(experiment_id=1, limit=10**6)
    assert outline.count == len(lines)
    assert outline.anchors == [line.id for line in lines][::1000]
    assert outline.tracebacks == [at for at, line in enumerate(lines) if line.text.startswith("Traceback")][:200]
