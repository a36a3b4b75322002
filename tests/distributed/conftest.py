"""Tests of real processes start them as they are started for a user."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _warm(warm_dir: Path) -> None:
    """Where a gang may be started warm, it is."""
