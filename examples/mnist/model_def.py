"""A small CNN for handwritten digits, as a Trial."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trek


def error_rate(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The share of wrong predictions."""
    return (output.argmax(1) != labels).float().mean()


class MNistTrial(trek.Trial):
    """Classifies images of 28×28 pixels into ten digits.

    Reads the prepared tables in the folder `data.prepared` of the config, if it is set, else the MNIST data set.
    """

    def build_model(self) -> nn.Module:
        """Two convolutions and two dense layers."""
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
        """An exponential decay of the learning rate per epoch, if `lr_decay` is set."""
        decay = self.context.get_hparams().get("lr_decay")
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, decay) if decay else None

    def build_training_data_loader(self) -> trek.DataLoader:
        """Shuffled, and divided among the processes."""
        return trek.DataLoader(self._table("train"), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> trek.DataLoader:
        """In order."""
        return trek.DataLoader(self._table("test"), 500)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        """The loss and the training error. Trek runs the backward pass and the step."""
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
    """Convert a batch of byte pixels to floats from 0 to 1."""
    return images.unsqueeze(1).float() / 255
