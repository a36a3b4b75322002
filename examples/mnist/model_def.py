"""A small CNN for handwritten digits, as a Trial: what to train, and what to do with a batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trek


def error_rate(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The share of wrong answers."""
    return (output.argmax(1) != labels).float().mean()


class MNistTrial(trek.Trial):
    """Images of 28×28 pixels in, one of ten digits out.

    Reads the prepared tables in `data.prepared` where the config names a folder, else the MNIST data set itself.
    """

    def build_model(self) -> nn.Module:
        """Two convolutions and two layers on top."""
        first, second = self.context.get_hparam("n_filters1"), self.context.get_hparam("n_filters2")
        return nn.Sequential(
            nn.Conv2d(1, first, kernel_size=5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(first, second, kernel_size=5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * second, 50),
            nn.ReLU(),
            nn.Dropout(self.context.get_hparam("dropout")),
            nn.Linear(50, 10),
            nn.LogSoftmax(dim=1),
        )

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """SGD with momentum."""
        return torch.optim.SGD(model.parameters(), lr=self.context.get_hparam("learning_rate"), momentum=0.9)

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        """A learning rate that shrinks with every epoch, where the config says so."""
        decay = self.context.get_hparams().get("lr_decay")
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, decay) if decay else None

    def build_training_data_loader(self) -> trek.DataLoader:
        """Shuffled, and shared out between the processes."""
        return trek.DataLoader(self._table("train"), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> trek.DataLoader:
        """In order."""
        return trek.DataLoader(self._table("test"), 500)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        """The loss, and the error on the way. Backward and the step are done by Trek."""
        images, labels = batch
        output = model(_scaled(images))
        return {"loss": F.nll_loss(output, labels.long()), "train_error": error_rate(output, labels)}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        """Metrics of one batch; Trek averages them by sample over batches and processes."""
        images, labels = batch
        output = model(_scaled(images))
        error = error_rate(output, labels)
        return {
            "validation_loss": F.nll_loss(output, labels.long()),
            "validation_error": error,
            "validation_accuracy": 1 - error,
        }

    def _table(self, split: str) -> Any:
        prepared = self.context.get_data_config().get("prepared")
        return trek.data.open(f"{prepared}/{split}") if prepared else trek.data.open("mnist", split=split)


def _scaled(images: torch.Tensor) -> torch.Tensor:
    """Pixels are bytes on disk and in memory; a batch becomes floats only when it is used."""
    return images.unsqueeze(1).float() / 255
