"""Which engine the experiments of a store need."""

from __future__ import annotations

from pathlib import Path

import pytest

from trek.control.experiments.named_engine import named_engine
from trek.control.store import Store
from trek.control.tables import ExperimentRow


@pytest.mark.parametrize(
    ("experiments", "expected"),
    [
        ([], None),
        ([("running", None)], None),
        ([("running", "ray"), ("queued", None)], "ray"),
        ([("paused", "ray"), ("running", "local")], "local"),
        ([("completed", "ray"), ("killed", "ray"), ("errored", "ray")], None),
    ],
)
def test_the_newest_unended_experiment_that_names_one_decides(
    tmp_path: Path, experiments: list[tuple[str, str | None]], expected: str | None
) -> None:
    store = Store(Store.url_at(tmp_path))
    with store.writing() as session:
        for state, engine in experiments:
            config = {} if engine is None else {"engine": engine}
            session.add(ExperimentRow(name="x", state=state, config=config, archive="", created_s=0.0))
    with store.reading() as session:
        assert named_engine(session) == expected
    store.close()
