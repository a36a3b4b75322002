"""Which direction of a metric is better, by its name."""

from __future__ import annotations

import pytest

from trek.metric_direction import is_smaller_better, named_direction
from trek.search.single import SingleSettings
from trek.train.metrics.goal import Goal

LARGER = (
    "accuracy val_acc val/accuracy valAccuracy top5-accuracy ROC_AUC AUROC f1 macroF1 R2 mAP mIoU BLEU-4 recall@5 score"
)
SMALLER = "loss validation_loss val_error err rmse RMSELoss mape nll WER accuracy_loss top1_err brier_score perplexity"
UNKNOWN = "m metric quality validation_1 elapsed"


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        *((name, False) for name in LARGER.split()),
        *((name, True) for name in SMALLER.split()),
        *((name, None) for name in UNKNOWN.split()),
    ],
)
def test_the_name_says_which_value_is_better(metric: str, expected: bool | None) -> None:
    assert named_direction(metric) is expected
    assert is_smaller_better(metric) is (expected is not False)


@pytest.mark.parametrize("metric", [*LARGER.split(), *SMALLER.split(), *UNKNOWN.split()])
@pytest.mark.parametrize("chosen", [{}, {"smaller_is_better": True}, {"smaller_is_better": False}])
def test_runs_and_searches_prefer_the_same_value(metric: str, chosen: dict[str, bool]) -> None:
    goal = Goal(metric, **chosen)
    searcher = SingleSettings.model_validate({"name": "single", "metric": metric, **chosen})
    small, large = goal.score({metric: 0.1}), goal.score({metric: 0.9})
    assert small is not None
    assert large is not None
    assert (small < large) is searcher.smaller_is_better
