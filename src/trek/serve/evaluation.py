"""The evaluation of a checkpoint: what its model answers for the validation data of its Trial, beside the labels.

The scores are what the model would answer if it were served. The label is the tensor of a batch that is no
input of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trek.errors import InputError
from trek.serve.handlers.base import Arrays
from trek.serve.handlers.model_code import import_trial
from trek.serve.handlers.trial_handler import TrialHandler, read_signature
from trek.serve.model_source import ModelSource
from trek.train.checkpointing.batch_signature import Field, fields_of, values_of
from trek.train.checkpointing.checkpoint_folder import open_checkpoint
from trek.train.checkpointing.loading import load_trial
from trek.train.metrics.classification import ScoreKind
from trek.train.metrics.classification_report import ClassificationReport
from trek.train.validation_data import open_validation_data
from trek.world import World
from trek.world.devices import choose_device


def evaluate(
    source: ModelSource,
    *,
    label: str = "",
    kind: ScoreKind | None = None,
    device: str = "cpu",
    classes: Sequence[str] | None = None,
) -> ClassificationReport:
    """The report on a classifier over all records of its validation data.

    `label` names the tensor of a batch with the labels, where it cannot be found; `classes` are their names. `kind`
    says whether the model returns logits or probabilities, as ClassificationReport needs it.
    """
    checkpoint = open_checkpoint(source.address)
    place = choose_device(device, local_rank=0)
    loaded = load_trial(checkpoint, import_trial(checkpoint, source), device=str(place))
    handler, signature = TrialHandler(loaded, checkpoint=checkpoint), read_signature(checkpoint)
    chosen = find_label(fields_of(signature), inputs=handler.input_names, label=label)
    world = World(device_name=str(place))
    data = open_validation_data(loaded.trial.build_validation_data_loader(), world=world, seed=0)
    labels, scores = list[Any](), list[Any]()
    for batch in data.batches(0):
        moved = _moved(batch.data, place)
        scores.append(find_scores(handler.answer_batch(moved)))
        labels.append(np.asarray(values_of(signature, moved)[chosen].cpu()).reshape(-1))
    return ClassificationReport(np.concatenate(labels), np.concatenate(scores), kind=kind, classes=classes)


def find_label(fields: Sequence[Field], *, inputs: Sequence[str], label: str) -> str:
    """The tensor with the labels: the one named, or the only one with a value per record that is no input."""
    names = [field.name for field in fields]
    if label:
        if label not in names:
            raise InputError(f"a batch has no tensor {label!r}. It has: {', '.join(names)}.")
        return label
    found = [field.name for field in fields if field.name not in inputs and field.shape in ((), (1,))]
    if len(found) != 1:
        raise InputError(
            f"the labels were not found among the tensors of a batch: {', '.join(names)}. Name theirs (--label)."
        )
    return found[0]


def find_scores(outputs: Arrays) -> np.ndarray:
    """The only output that has a row of numbers, or a number, for each record."""
    found = [array for array in outputs.values() if array.dtype.kind == "f" and array.ndim in (1, 2)]
    if len(found) != 1:
        shapes = {name: array.shape for name, array in outputs.items()}
        raise InputError(f"a report needs one output with scores by class, but the model returns {shapes}.")
    return found[0]


def _moved(batch: Any, place: Any) -> Any:
    if hasattr(batch, "to"):
        return batch.to(place)
    if isinstance(batch, Mapping):
        return {key: _moved(one, place) for key, one in batch.items()}
    if isinstance(batch, list | tuple):
        moved = [_moved(one, place) for one in batch]
        return tuple(moved) if isinstance(batch, tuple) else moved
    return batch
