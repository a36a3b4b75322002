"""A searcher of another package is used from a config like one of Trek's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trek.errors import ConfigError
from trek.experiments.config import ExperimentConfig
from trek.experiments.config_schema import config_schema
from trek.search import make_searcher, preview
from trek.search.base import Searcher
from trek.search.searcher_registry import SEARCHERS
from trek.testing.plugins import plugin_package
from trek.testing.searchers import SearcherSuite

SOURCE = '''
from typing import Literal

from pydantic import Field

from trek.search import LengthSetting, PoolSearcher, SearcherSettings


class FewSettings(SearcherSettings):
    """So many trials."""

    name: Literal["few"]
    max_length: LengthSetting
    count: int = Field(ge=1, le=5)


class FewSearcher(PoolSearcher):
    settings_type = FewSettings
    max_trials = 3

    def __init__(self, settings, *, space, seed):
        super().__init__(space=space, seed=seed, length=settings.max_length.count, max_concurrent=0)
        self.max_trials = settings.count
'''
CONFIG: dict[str, Any] = {
    "entrypoint": "m:T",
    "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
    "searcher": {"name": "few", "metric": "e", "max_length": {"epochs": 2}, "count": 3},
}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path) -> Iterator[None]:
    points = {"trek.searchers": {"few": "few_searcher:FewSearcher"}}
    with plugin_package(tmp_path, module="few_searcher", source=SOURCE, entry_points=points, refresh=SEARCHERS):
        yield


class TestTheSuite(SearcherSuite):
    """A third party runs the suite on its searcher."""

    def make(self) -> Searcher:
        config = ExperimentConfig.parse(CONFIG)
        return make_searcher(config.searcher, hyperparameters=config.hyperparameters, seed=0)


def test_a_config_is_read_written_and_read_again() -> None:
    config = ExperimentConfig.parse(CONFIG)
    assert config.normal_form()["searcher"]["count"] == 3
    assert ExperimentConfig.parse(config.normal_form()) == config


def test_an_unknown_searcher_cannot_be_previewed() -> None:
    with pytest.raises(
        ConfigError, match=r"^searcher 'fewer' does not exist\. Did you mean 'few'\? Use one of: .*single\.$"
    ):
        preview({"searcher": {"name": "fewer"}})
    with pytest.raises(ConfigError, match=r"^'searcher\.count' is 6: must be less than or equal to 5\.$"):
        preview({"searcher": {**CONFIG["searcher"], "count": 6}})


def test_a_search_can_be_previewed() -> None:
    assert preview(CONFIG) == [{"trials": 3, "length": 2, "unit": "epochs"}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": 6}, "'searcher.count' is 6: must be less than or equal to 5"),
        ({"cuont": 2}, "'searcher.cuont' is not a known key. Did you mean 'count'?"),
        ({"max_trials": 2}, "'searcher.max_trials' is a setting of other searchers; this one has: .*count"),
        ({"name": "fewer"}, "searcher 'fewer' does not exist. Did you mean 'few'"),
        ({"name": "random"}, "'searcher.count' is a setting of other searchers"),
    ],
)
def test_its_settings_are_validated_by_its_own_class(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        ExperimentConfig.parse({**CONFIG, "searcher": {**CONFIG["searcher"], **changes}})


def test_the_schema_for_editors_knows_it() -> None:
    jsonschema.validate(CONFIG, config_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**CONFIG, "searcher": {**CONFIG["searcher"], "count": 9}}, config_schema())
