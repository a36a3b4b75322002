"""A model in ElasticDL's model-zoo form, for PyTorch: images of digits with the columns image and label."""

import torch
import torch.nn.functional as F
from torch import nn

from trek.compat.elasticdl.constants import Mode


def custom_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def loss(labels, predictions):
    return F.cross_entropy(predictions, labels)


def optimizer(parameters, lr=0.05):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def feed(dataset, mode, _):
    columns = dataset.to_torch()
    images = columns["image"].float().unsqueeze(1) / 16
    if mode == Mode.PREDICTION:
        return images
    return torch.utils.data.TensorDataset(images, columns["label"].long())


def eval_metrics_fn():
    return {"accuracy": lambda labels, outputs: outputs.argmax(1) == labels}
