"""What a loaded model takes and returns, for every kind of model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from trek.errors import InputError
from trek.serve.handlers import open_handler
from trek.serve.model_source import ModelSource
from trek.serve.tensor_spec import TensorSpec
from trek.testing.serving import CODE, ScoringTrial, source_of, train_points
from trek.testing.trials import PointsTrial
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder


def test_a_checkpoint_knows_what_its_model_takes_and_returns(points: Path) -> None:
    handler = open_handler(source_of(points))
    assert handler.inputs == [TensorSpec("input_0", "float32", (6,))]  # not the labels, which nothing depends on
    assert handler.outputs == [TensorSpec("output", "float32", (2,))]


def test_a_checkpoint_answers_what_its_model_gives_in_evaluation(points: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(5, 6)).astype("float32")
    model = CheckpointFolder(points).load_model(PointsTrial)
    expected = model(torch.from_numpy(rows)).detach().numpy()
    assert np.array_equal(open_handler(source_of(points)).predict({"input_0": rows})["output"], expected)


def test_predict_batch_and_hooks_of_a_trial_are_used(tmp_path: Path) -> None:
    handler = open_handler(source_of(train_points(tmp_path, trial=ScoringTrial)))
    inputs = handler.fit({"text": ["1 1 1 1 1 1", "-9 -9 -9 -9 -9 -9"]})
    assert handler.predict(inputs)["name"].tolist() == ["plus", "minus"]


def test_code_of_a_checkpoint_comes_from_the_folder_named_alone(points: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not in .*--code"):
        open_handler(ModelSource.parse(points, code=tmp_path))


def test_a_function_takes_its_parameters_by_name() -> None:
    handler = open_handler(source_of("trek.testing.served_functions:double"))
    assert handler.predict(handler.fit({"x": [1, 2]}))["y"].tolist() == [2, 4]
    with pytest.raises(InputError, match="input 'x' is missing"):
        handler.fit({"z": [1]})


def test_a_function_without_parameters_makes_the_model() -> None:
    handler = open_handler(source_of("trek.testing.serving:make_layer"))
    assert handler.predict({"input": np.ones((3, 2), "float32")})["output"].tolist() == [[2.0]] * 3


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("trek.testing.served_functions:missing", "does not exist"),
        ("trek_no_such_module:function", "cannot be imported"),
        ("trek.testing.served_functions:broken", "RuntimeError: no such weights"),
        ("trek.testing.serving:CODE", "is not a function or a model"),
    ],
)
def test_what_cannot_be_loaded_says_why(address: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_handler(ModelSource.parse(address, code=CODE))


@pytest.mark.parametrize("place", ["no/such/folder", "nothing", "./missing", "missing.mar"])
def test_a_missing_model_is_named_by_its_absolute_path(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"'{tmp_path / place}' does not exist"):
        ModelSource.parse(place)


def test_what_is_not_a_model_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a model: expected the folder or URL of a checkpoint"):
        ModelSource.parse(str(tmp_path))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0] * 5], r"shape \[any, 6\], got \[1, 5\]"),
        ([["a"] * 6], "must be float32, got text"),
        ([[1.0] * 6, [1.0]], "rectangular"),
        (3.0, "shape"),
        ([[None] * 6], "numbers or text"),
    ],
)
def test_values_that_do_not_fit_are_refused(points: Path, values: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_handler(source_of(points)).fit({"input_0": values})


def test_whole_numbers_are_not_rounded() -> None:
    spec = TensorSpec("pixel", "uint8", ())
    assert spec.fit([1.0, 255]).dtype == np.uint8
    for wrong in ([0.5], [300], [-1]):
        with pytest.raises(InputError, match="do not fit"):
            spec.fit(wrong)


def test_rows_of_parameter_servers_are_served_from_the_checkpoint(tmp_path: Path) -> None:
    from trek.testing.rating_trial import RatingTrial, make_ratings
    from trek.train.fit import fit
    from trek.train.length import batches

    result = fit(RatingTrial, hparams={"global_batch_size": 16}, max_length=batches(3), checkpoint_dir=tmp_path)
    assert result.checkpoint is not None
    handler = open_handler(source_of(result.checkpoint.path))
    users, tags, _ = make_ratings()[:4]
    expected = result.checkpoint.load_model(RatingTrial)(users, tags).detach().numpy()
    assert [spec.name for spec in handler.inputs or ()] == ["input_0", "input_1"]
    assert np.array_equal(handler.predict({"input_0": users.numpy(), "input_1": tags.numpy()})["output"], expected)
