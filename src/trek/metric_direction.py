"""Which direction of a metric is better, by the metric's name: the one rule for runs, searches and checkpoints."""

from __future__ import annotations

import re

_SMALLER_STEMS = ("loss", "err", "perplex")
_SMALLER_WORDS = {
    "mse", "rmse", "rmsle", "mae", "mape", "smape", "nll", "brier", "ece", "ppl", "bpc", "bpb", "wer", "cer", "fid",
    "entropy",
}  # fmt: skip
_LARGER_STEMS = ("acc", "auc", "auroc", "auprc", "f1", "precision", "recall", "score", "bleu", "rouge", "dice")
_LARGER_WORDS = {
    "r2", "iou", "miou", "map", "roc", "ndcg", "mrr", "psnr", "ssim", "mcc", "kappa", "jaccard", "sensitivity",
    "specificity", "correlation", "reward",
}  # fmt: skip
"""Whole words: `map` is a quality, `mape` an error."""
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+[0-9]*(?![a-z])")


def named_direction(metric: str) -> bool | None:
    """Whether a smaller value is better as the name says it; None where it does not.

    A word for an error outweighs one for a quality, so `accuracy_loss` and `brier_score` should be small.
    """
    words = {*re.split(r"[^a-z0-9]+", metric.lower()), *(word.lower() for word in _WORD.findall(metric))}
    if any(word.startswith(_SMALLER_STEMS) or word in _SMALLER_WORDS for word in words):
        return True
    if any(word.startswith(_LARGER_STEMS) or word in _LARGER_WORDS for word in words):
        return False
    return None


def is_smaller_better(metric: str) -> bool:
    """Whether a smaller value of the metric is better: as its name says, and yes where it does not."""
    return named_direction(metric) is not False
