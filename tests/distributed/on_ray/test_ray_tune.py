"""Ray Tune as a front, on a real Ray: trials of two processes each, from a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray.tune", reason="Ray Tune is not installed", exc_type=ImportError)

from trek.errors import ConfigError, InputError
from trek.integrations.ray_tune import space, tuner
from trek.testing.trials import PointsTrial

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]
CONFIG = """
hyperparameters:
  global_batch_size: 16
  lr: {grid_search: [0.5, 1.0e-9]}
metric: accuracy
mode: max
max_length: {epochs: 2}
workers: 2
concurrent: 1
"""


@pytest.mark.campaign
@pytest.mark.usefixtures("cluster")
def test_trials_of_two_processes_are_searched_by_tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    (tmp_path / "search.yaml").write_text(CONFIG)
    results = tuner(tmp_path / "search.yaml", PointsTrial).fit()
    assert [one.error for one in results] == [None, None]
    best = results.get_best_result()
    assert best.config["lr"] == 0.5
    assert best.metrics["accuracy"] > 0.8
    assert best.metrics["batches"] > 0


def test_a_space_is_written_in_tunes_own_words() -> None:
    made: dict[str, Any] = space({"lr": {"loguniform": ["1e-4", 0.1]}, "net": {"units": {"choice": [1, 2]}}, "x": 3})
    assert (made["x"], made["lr"].lower, made["lr"].upper) == (3, 1e-4, 0.1)
    assert made["net"]["units"].categories == [1, 2]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"hyperparameters": {}, "metric": "a"}, "the config has no 'max_length'"),
        ({"hyperparamters": {}}, "unknown key 'hyperparamters'"),
        ({"hyperparameters": {}, "metric": "a", "max_length": 3}, "max_length must be one of"),
    ],
)
def test_a_wrong_config_is_one_clear_error(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tuner(config, PointsTrial)
    with pytest.raises(InputError, match=r"config 'none\.yaml' not found"):
        tuner("none.yaml", PointsTrial)
