"""A Trial in Determined's old spelling, as its users have it: only the import lines are Trek's.

    trek det experiment create const.yaml .

The data is fetched to the folder of each process. `DataLoader`, `context.get_hparam` and the signatures of
`train_batch` and `evaluate_batch` are Determined's.
"""

import torch
import torch.nn.functional as F
from torch import nn

import trek.compat.determined as det
from trek.compat.determined.pytorch import DataLoader, PyTorchTrial, reset_parameters
from trek.compat.torchvision import datasets, transforms


def digits(folder: str, *, train: bool) -> datasets.MNIST:
    """MNIST with pixels around zero."""
    prepare = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.13,), (0.31,))])
    return datasets.MNIST(folder, train=train, transform=prepare, download=True)


def share_of_errors(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """How many of the labels are not what the model says."""
    return (logits.argmax(1) != labels).float().mean().item()


class MNISTTrial(PyTorchTrial):
    """Two convolutions and two linear layers, trained with SGD."""

    def __init__(self, context: det.TrialContext) -> None:
        self.context = context
        self.folder = f"data/rank_{context.distributed.get_rank()}"

    def build_training_data_loader(self):
        return DataLoader(digits(self.folder, train=True), batch_size=self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        return DataLoader(digits(self.folder, train=False), batch_size=self.context.get_per_slot_batch_size())

    def build_model(self):
        first, second = self.context.get_hparam("n_filters1"), self.context.get_hparam("n_filters2")
        features = [nn.Conv2d(1, first, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(first, second, 5), nn.ReLU()]
        head = [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * second, 64), nn.ReLU()]
        model = nn.Sequential(*features, *head, nn.Dropout(self.context.get_hparam("dropout")), nn.Linear(64, 10))
        reset_parameters(model)
        return model

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.context.get_hparam("learning_rate"), momentum=0.9)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        images, labels = batch
        logits = model(images)
        return {"loss": F.cross_entropy(logits, labels), "train_error": share_of_errors(logits, labels)}

    def evaluate_batch(self, batch, model):
        images, labels = batch
        return {"validation_error": share_of_errors(model(images), labels)}
