"""Creating an experiment: what is sent, and that a mistake sends nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from trek.client.client import Address, Client
from trek.errors import ConfigError, EntrypointError
from trek.experiments.creation import create_experiment

CONFIG: dict[str, Any] = {
    "name": "mine",
    "entrypoint": "model_def:Tiny",
    "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 100}},
    "hyperparameters": {"lr": 0.1},
}
TEMPLATE = {"name": "template's", "max_restarts": 3, "hyperparameters": {"lr": 9.0, "width": 4}}


class Plane:
    """Answers as a control plane would, and keeps the created experiment's request."""

    def __init__(self) -> None:
        self.num_connects = 0
        self.created: dict[str, Any] = {}
        self._client = Client(Address("http://master"), transport=httpx.MockTransport(self._answer))

    def connect(self, engine: str | None) -> Client:
        self.num_connects += 1
        self.engine = engine
        return self._client

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/v1")
        if path == "/templates/base":
            return httpx.Response(200, json={"name": "base", "config": TEMPLATE})
        if path.endswith("/exists"):
            return httpx.Response(200, json=True)
        assert (request.method, path) == ("POST", "/experiments")
        self.created = json.loads(request.content)
        searcher = {"metric": "error", "smaller_is_better": True, "searcher": "single"}
        details = {"id": 7, "name": "x", "state": "queued", "progress": 0, "created_s": 1, "archive": "", **searcher}
        return httpx.Response(201, json={**details, "config": self.created["config"]})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model_def.py").write_text("class Tiny: ...")
    return folder


@pytest.fixture(params=["mapping", "file"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, Any] | Path:
    if request.param == "mapping":
        return CONFIG
    path = tmp_path / "const.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def test_the_config_is_laid_over_its_template_and_overridden(config: Any, model: Path) -> None:
    plane = Plane()
    overrides = {"searcher.max_length": {"batches": 5}, "hyperparameters.text": "1e-3", "description": "é: {x}"}
    create_experiment(config, model, connect=plane.connect, template="base", overrides=overrides, labels=["flow:x"])
    sent = plane.created["config"]
    assert (sent["name"], sent["max_restarts"], sent["labels"]) == ("mine", 3, ["flow:x"])
    assert sent["hyperparameters"] == {"lr": 0.1, "width": 4, "text": "1e-3"}
    assert sent["searcher"]["max_length"] == {"batches": 5}
    assert sent["description"] == "é: {x}"


def test_provenance_is_always_sent(config: Any, model: Path) -> None:
    plane = Plane()
    assert create_experiment(config, model, connect=plane.connect).id == 7
    assert {"trek", "python", "machine", "packages", "git"} <= plane.created["provenance"].keys()


def test_the_control_plane_is_asked_for_with_the_engine_of_the_config(config: Any, model: Path) -> None:
    plane = Plane()
    create_experiment(config, model, connect=plane.connect)
    assert plane.engine is None
    create_experiment(config, model, connect=plane.connect, overrides={"engine": "local"})
    assert plane.engine == "local"


def test_a_mistake_is_found_before_anybody_is_connected(config: Any, model: Path) -> None:
    plane = Plane()
    with pytest.raises(ConfigError, match="searcher"):
        create_experiment(config, model, connect=plane.connect, overrides={"searcher.name": "nosuch"})
    (model / "model_def.py").write_text("")
    with pytest.raises(EntrypointError, match="has no 'Tiny'"):
        create_experiment(config, model, connect=plane.connect)
    assert plane.num_connects == 0
