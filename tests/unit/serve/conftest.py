"""A trained checkpoint, made once for the tests of serving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.testing.serving import train_points


@pytest.fixture(scope="session")
def points(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a checkpoint of PointsTrial."""
    return train_points(tmp_path_factory.mktemp("points"))
