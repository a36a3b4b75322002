"""Determined's MNIST tutorial: only the import lines, and the folder of the data, are Trek's."""

import os
from typing import Tuple, cast

import torch
from torch import nn

import trek.compat.determined as det
from trek.compat.determined.pytorch import DataLoader, PyTorchTrial, TorchData, reset_parameters
from trek.compat.torchvision import datasets, transforms


class Flatten(nn.Module):
    def forward(self, *args: TorchData, **kwargs) -> torch.Tensor:
        assert len(args) == 1
        x = args[0]
        assert isinstance(x, torch.Tensor)
        return x.contiguous().view(x.size(0), -1)


def error_rate(predictions: torch.Tensor, labels: torch.Tensor) -> float:
    matches = predictions.argmax(1) == labels.to(torch.long)
    return 1.0 - float(matches.sum()) / predictions.shape[0]


class MNistTrial(PyTorchTrial):
    def __init__(self, context: det.TrialContext):
        self.context = context

    def download_data(self, train: bool):
        download_directory = "data/{}/MNIST".format(self.context.distributed.get_rank())
        os.makedirs(download_directory, exist_ok=True)
        transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
        return datasets.MNIST(download_directory, train=train, transform=transform, download=True)

    def build_training_data_loader(self):
        train_data = self.download_data(train=True)
        batch_size = self.context.get_per_slot_batch_size()
        return DataLoader(train_data, batch_size=batch_size)

    def build_validation_data_loader(self):
        validation_data = self.download_data(train=False)
        batch_size = self.context.get_per_slot_batch_size()
        return DataLoader(validation_data, batch_size=batch_size)

    def build_model(self):
        model = nn.Sequential(
            nn.Conv2d(1, self.context.get_hparam("n_filters1"), kernel_size=5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(
                self.context.get_hparam("n_filters1"),
                self.context.get_hparam("n_filters2"),
                kernel_size=5,
            ),
            nn.MaxPool2d(2),
            nn.ReLU(),
            Flatten(),
            nn.Linear(16 * self.context.get_hparam("n_filters2"), 50),
            nn.ReLU(),
            nn.Dropout2d(self.context.get_hparam("dropout")),
            nn.Linear(50, 10),
            nn.LogSoftmax(),
        )

        reset_parameters(model)
        return model

    def optimizer(self, model: nn.Module):
        return torch.optim.SGD(model.parameters(), lr=self.context.get_hparam("learning_rate"), momentum=0.9)

    def train_batch(self, batch: TorchData, model: nn.Module, epoch_idx: int, batch_idx: int):
        batch = cast(Tuple[torch.Tensor, torch.Tensor], batch)
        data, labels = batch

        output = model(data)
        loss = torch.nn.functional.nll_loss(output, labels)
        error = error_rate(output, labels)

        return {"loss": loss, "train_error": error}

    def evaluate_batch(self, batch: TorchData, model: nn.Module):
        batch = cast(Tuple[torch.Tensor, torch.Tensor], batch)
        data, labels = batch

        output = model(data)
        error = error_rate(output, labels)

        return {"validation_error": error}
