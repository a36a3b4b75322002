"""Every kind of handler keeps the contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trek.serve.archiving import archive
from trek.serve.handlers import open_handler
from trek.serve.handlers.base import Arrays, Handler
from trek.testing.handler_conformance import HandlerConformance
from trek.testing.serving import CODE, source_of

POINTS = np.random.default_rng(6).normal(size=(4, 6)).astype("float32")


class TestTrialHandler(HandlerConformance):
    @pytest.fixture
    def handler(self, points: Path) -> Handler:
        return open_handler(source_of(points))

    @pytest.fixture
    def inputs(self) -> Arrays:
        return {"input_0": POINTS}


class TestFunctionHandler(HandlerConformance):
    @pytest.fixture
    def handler(self) -> Handler:
        return open_handler(source_of("trek.testing.served_functions:double"))

    @pytest.fixture
    def inputs(self) -> Arrays:
        return {"x": np.arange(5)}


class TestModuleHandler(HandlerConformance):
    @pytest.fixture
    def handler(self) -> Handler:
        return open_handler(source_of("trek.testing.serving:Doubling"))

    @pytest.fixture
    def inputs(self) -> Arrays:
        return {"x": POINTS}


class TestArchiveHandler(HandlerConformance):
    @pytest.fixture
    def handler(self, points: Path, tmp_path: Path) -> Handler:
        return open_handler(source_of(archive(points, tmp_path / "points.mar", labels=["minus", "plus"], code=CODE)))

    @pytest.fixture
    def inputs(self) -> Arrays:
        return {"input_0": POINTS}
