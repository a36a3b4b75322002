"""EvaluationReport: confusion matrix, per-class table, ROC, precision-recall and calibration of a classifier.

Kept as artifacts of the run after its validations, so that they are on the trial's page. What is in it is
`trek.train.metrics.classification_report`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trek.errors import ConfigError, InputError
from trek.train.callbacks.callback import Callback
from trek.train.metrics.classification import ScoreKind, check_kind
from trek.train.metrics.classification_report import ClassificationReport
from trek.train.trial import TrialContext

FOLDER = "report"


class EvaluationReport(Callback):
    """Add it to `build_callbacks`, and pass labels and scores to `update` in `evaluate_batch`.

        def __init__(self, context):
            self.report = EvaluationReport(context, kind="logits", classes=["cat", "dog"])

        def build_callbacks(self):
            return {"report": self.report}

        def evaluate_batch(self, batch, model):
            scores = model(batch["image"])
            self.report.update(labels=batch["label"], scores=scores)

    `scores` are logits or probabilities by class, as `kind` says, or one score per record, that of the second of two
    classes. Without a `kind`, scores below 0 or above 1 are logits, and others are refused. What all ranks saw is
    gathered; a report replaces the one of the validation before.
    """

    def __init__(
        self,
        context: TrialContext,
        *,
        kind: ScoreKind | None = None,
        classes: Sequence[str] | None = None,
        folder: str = FOLDER,
    ) -> None:
        check_kind(kind)
        if classes is not None and (isinstance(classes, str) or len(classes) < 2):
            raise ConfigError(f"classes must be a list of at least 2 names, got {classes!r}.")
        self._context = context
        self._kind = kind
        self._classes = None if classes is None else [str(one) for one in classes]
        self._folder = folder
        self._seen: list[tuple[list[int], list[Any]]] = []

    def update(self, *, labels: Any, scores: Any) -> None:
        """Add the records of one validation batch. A batch that only fills up a rank does not count."""
        if self._context.traveler.is_counted:
            self._seen.append((_listed(labels), _listed(scores)))

    def on_validation_start(self) -> None:
        """Begin anew."""
        self._seen = []

    def on_validation_end(self, metrics: dict[str, float]) -> None:
        """Gather what all ranks saw; the leader keeps the report."""
        gathered = self._context.traveler.strategy.gather(self._seen)
        self._seen = []
        if not self._context.traveler.world.is_leader:
            return
        labels = [one for seen in gathered for own, _ in seen for one in own]
        scores = [one for seen in gathered for _, own in seen for one in own]
        if not labels:
            raise InputError("the evaluation report has no records. Call `update` in evaluate_batch.")
        report = ClassificationReport(labels, scores, kind=self._kind, classes=self._classes)
        for name, value in report.artifacts().items():
            self._context.log_artifact(value, f"{self._folder}/{name}")


def _listed(values: Any) -> list[Any]:
    return list(values.detach().float().cpu().tolist() if hasattr(values, "detach") else np.asarray(values).tolist())
