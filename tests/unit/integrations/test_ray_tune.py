"""Search spaces of Ray Tune from plain values."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed")

from trek.errors import ConfigError
from trek.integrations.ray_tune import space

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def test_every_kind_of_tune_is_one_here() -> None:
    from ray import tune

    made = space(
        {
            "rate": {"qloguniform": ["1e-4", 0.1, "1e-4"]},
            "units": {"lograndint": [1, 100]},
            "noise": {"randn": {"mean": 0.0, "sd": 2.0}},
            "net": {"depth": {"choice": [1, 2]}},
            "sizes": {"layers": [64, 64]},
        }
    )
    assert 1e-4 <= made["rate"].sample() <= 0.1
    assert isinstance(made["units"].sample(), int)
    assert isinstance(made["noise"], type(tune.randn()))
    assert made["net"]["depth"].sample() in (1, 2)
    assert made["sizes"] == {"layers": [64, 64]}


@pytest.mark.parametrize(
    ("value", "meant"),
    [({"normal": [0, 1]}, "randn"), ({"log_uniform": [1, 2]}, "loguniform"), ({"choices": [1, 2]}, "choice")],
)
def test_a_kind_that_does_not_exist_is_refused(value: dict[str, Any], meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"hyperparameter 'c' has the unknown kind .* Did you mean '{meant}'\?"):
        space({"group": {"c": value, "d": 1}})
