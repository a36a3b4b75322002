"""From download to a tested model as a flow: a step runs again only when something that it depends on changed.

trek flow run examples/mnist/flow.py                            # MNIST, passed to training on disk
trek flow run examples/mnist/flow.py --param handover=memory    # the prepared rows are passed in shared memory
trek flow run examples/mnist/flow.py --param dataset=digits     # small, and needs no network
trek flow run examples/mnist/flow.py --help                     # all parameters
trek flow graph mnist                                           # what ran, for how long, and why
"""

from __future__ import annotations

from typing import Any

import torch
from demo import to_28x28
from model_def import MNistTrial

import trek
from trek.data import Table

HPARAMS = {"n_filters1": 16, "n_filters2": 32, "dropout": 0.25}


class PreparedTrial(MNistTrial):
    """The same model on tables that an earlier step prepared."""

    def _table(self, split: str) -> Table:
        table: Table = self.context.get_data_config()[split]
        return table


def download(name: str) -> str:
    """Fetch and verify both splits. They are cached for all flows, so the name identifies them."""
    for split in ("train", "test"):
        print(f"{name}, {split}: {len(trek.data.open(name, split=split))} rows")
    return name


def prepare(name: str) -> tuple[Table, Table]:
    """Both splits as images of 28×28 bytes."""
    train, test = (trek.data.open(name, split=split).map(to_28x28) for split in ("train", "test"))
    return train, test


def fit(train: Table, test: Table, *, epochs: int, **hparams: Any) -> trek.Checkpoint:
    """Train, and return the best checkpoint."""
    result = trek.fit(
        PreparedTrial,
        hparams=HPARAMS | hparams,
        data={"train": train, "test": test},
        max_length=trek.epochs(epochs),
        metric="validation_error",
        name="mnist-flow",
    )
    print(f"best: {result.best}")
    return result.best_checkpoint


def evaluate(model: trek.Checkpoint, test: Table) -> float:
    """The accuracy of the saved model."""
    share = trek.run(count_correct, model, test, workers=1) / len(test)
    print(f"accuracy {share:.4f}")
    return share


def count_correct(traveler: trek.Traveler, model: trek.Checkpoint, test: Table) -> int:
    """The number of correct predictions."""
    trial = PreparedTrial(trek.TrialContext(traveler, hparams=HPARAMS, data={"test": test}))
    network = trial.build_model().eval()
    network.load_state_dict(model.state_dict())
    correct = 0.0
    with torch.inference_mode():
        for images, labels in trial.build_validation_data_loader():
            correct += float(trial.evaluate_batch((images, labels), network)["validation_accuracy"]) * len(labels)
    return round(correct)


flow = trek.Flow("mnist")
dataset = flow.param("dataset", "mnist", help="mnist, or digits")
handover = flow.param("handover", "disk", help="how the prepared rows are passed to training: disk, or memory")
epochs = flow.param("epochs", 1, help="number of epochs to train")
batch_size = flow.param("batch_size", 64, help="rows per batch")
learning_rate = flow.param("learning_rate", 0.04, help="learning rate of SGD with momentum")

source = flow.step(download, dataset, retries=3, timeout_s=600)
train_rows, test_rows = flow.step(prepare, source, outputs=2)
model = flow.step(
    fit, train_rows, test_rows, epochs=epochs, global_batch_size=batch_size, learning_rate=learning_rate,
    handover=handover,
)  # fmt: skip
accuracy = flow.step(evaluate, model, test_rows, handover=handover)

if __name__ == "__main__":
    run = flow.run()
    print(f"accuracy {run[accuracy]:.4f}, model in {run.path(model)}")
