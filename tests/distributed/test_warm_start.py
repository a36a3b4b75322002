"""Warm start with real processes: the conformance suite again, what forking must not change, and kills."""

from __future__ import annotations

import pytest

from trek.engines import Engine
from trek.engines.local import LocalEngine
from trek.testing.engine_conformance import EngineConformance


@pytest.mark.usefixtures("warm_dir")
class TestWarmLocalEngine(EngineConformance):
    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine(warm_start=True)
