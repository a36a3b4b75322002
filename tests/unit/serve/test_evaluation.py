"""The evaluation of a checkpoint: labels and scores over its validation data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from trek.errors import InputError
from trek.serve.evaluation import evaluate, find_label, find_scores
from trek.testing.serving import source_of
from trek.testing.trials import PointsTrial
from trek.train.checkpointing.batch_signature import Field, build_batch, describe_batch, values_of
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.checkpointing.loading import load_trial


def test_scores_are_those_of_the_model_for_every_record_of_the_validation_data(points: Path) -> None:
    found = evaluate(source_of(points)).predictions
    loaded = load_trial(CheckpointFolder(points), PointsTrial)
    batches = list(loaded.trial.build_validation_data_loader())
    with torch.no_grad():
        expected = torch.cat([loaded.model(x).softmax(1) for x, _ in batches])
    assert np.allclose(found.probabilities, expected.numpy(), atol=1e-6)
    assert found.labels.tolist() == torch.cat([y for _, y in batches]).tolist()
    with pytest.raises(InputError, match="probabilities must be from 0 to 1"):
        evaluate(source_of(points), kind="probabilities")
    with pytest.raises(InputError, match=r"no tensor 'class'\. It has: input_0, input_1"):
        evaluate(source_of(points), label="class")


def test_the_label_is_what_is_no_input_of_the_model() -> None:
    fields = [Field("image", "float32", (2, 2)), Field("class", "int64", ()), Field("box", "float32", (4,))]
    assert find_label(fields, inputs=["image"], label="") == "class"
    assert find_label(fields, inputs=["image"], label="box") == "box"
    with pytest.raises(InputError, match=r"Name theirs \(--label\)"):
        find_label([*fields, Field("weight", "float32", ())], inputs=["image"], label="")


def test_an_answer_without_scores_is_refused() -> None:
    assert find_scores({"a": np.ones((3, 2)), "b": np.ones(3, int)}).shape == (3, 2)
    with pytest.raises(InputError, match="one output with scores by class"):
        find_scores({"a": np.ones((3, 2)), "b": np.ones((3, 2))})


def test_the_tensors_of_a_batch_are_found_by_name() -> None:
    batch = ({"a": torch.ones(2), "b": [torch.zeros(2)]}, torch.arange(2))
    signature = describe_batch(batch)
    found = values_of(signature, batch)
    assert found.keys() == {"input_0.a", "input_0.b.input_0", "input_1"}
    assert torch.equal(values_of(signature, build_batch(signature, found))["input_1"], torch.arange(2))
