"""A checkpoint gives its model back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import trek
from trek.errors import CheckpointError, InputError
from trek.system.home import trek_home
from trek.testing.trials import PointsTrial, make_points


def test_a_checkpoint_rebuilds_its_model_from_the_trials_name_and_hyperparameters() -> None:
    hparams = {"global_batch_size": 16, "double": True}
    result = trek.fit(PointsTrial, hparams=hparams, max_length=trek.epochs(1), show_progress=False)
    assert result.checkpoint is not None
    model = result.checkpoint.load_model()
    assert not model.training
    points, labels = make_points(50, dtype=torch.float64)
    accuracy = (model(points).argmax(1) == labels).double().mean()
    assert result.best is not None
    assert result.best["accuracy"] == pytest.approx(accuracy.item())


def test_a_model_comes_back_with_the_averaged_weights_it_was_validated_with() -> None:
    hparams = {"global_batch_size": 16, "double": True}
    result = trek.fit(PointsTrial, hparams=hparams, max_length=trek.epochs(2), ema_decay=0.9, show_progress=False)
    assert result.checkpoint is not None
    assert result.best is not None
    points, labels = make_points(50, dtype=torch.float64)
    loss = nn.functional.cross_entropy(result.checkpoint.load_model()(points), labels)
    assert result.best["validation_loss"] == pytest.approx(loss.item())
    weights, averages = result.checkpoint.state_dict(), result.checkpoint.state_dict(averaged=True)
    assert list(weights) == list(averages)
    assert not torch.equal(weights["0.weight"], averages["0.weight"])


def test_averages_that_were_not_kept_cannot_be_asked_for() -> None:
    result = trek.fit(PointsTrial, hparams={"global_batch_size": 16}, max_length=trek.epochs(1), show_progress=False)
    assert result.checkpoint is not None
    with pytest.raises(InputError, match="has no moving averages"):
        result.checkpoint.state_dict(averaged=True)


def test_a_trial_that_cannot_be_imported_is_named_and_can_be_passed() -> None:
    class Local(PointsTrial):
        pass

    result = trek.fit(Local, hparams={"global_batch_size": 16}, max_length=trek.epochs(1), show_progress=False)
    assert result.checkpoint is not None
    with pytest.raises(CheckpointError, match="pass the class"):
        result.checkpoint.load_model()
    assert isinstance(result.checkpoint.load_model(Local), nn.Sequential)


def test_a_checkpoint_of_an_explicit_loop_says_that_only_its_code_can_rebuild_it() -> None:
    def train(tr: trek.Traveler) -> None:
        tr.add_model(nn.Linear(2, 2))
        tr.save()

    trek.run(train, workers=1, name="loop")
    folder = trek_home() / "runs" / "loop" / "checkpoints"
    with pytest.raises(CheckpointError, match="explicit loop"):
        trek.Checkpoint(next(folder.iterdir())).load_model()


def test_a_table_takes_a_checkpoint_to_predict_with() -> None:
    result = trek.fit(PointsTrial, hparams={"global_batch_size": 16}, max_length=trek.epochs(1), show_progress=False)
    points, _ = make_points(20)
    table = trek.data.Table.of({"points": points.numpy()})
    assert result.checkpoint is not None
    predicted = table.predict(result.checkpoint, batch_size=8).to_torch()
    expected = result.checkpoint.load_model()(points)
    column = next(name for name in predicted if name != "points")
    torch.testing.assert_close(predicted[column], expected.detach())
