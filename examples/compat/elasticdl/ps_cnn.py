"""A loop that trains a small CNN with ElasticDL's PSClient: servers hold the parameters, and apply the gradients.

    trek ps serve --port 7164
    python ps_cnn.py --ps_addrs 127.0.0.1:7164
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.compat.elasticdl.ps_client import PSClient, Tensor

LEARNING_RATE = 0.1


def digits(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images with one channel, and their labels."""
    columns = trek.data.open("digits", split=split).to_torch()
    return columns["image"].float().unsqueeze(1) / 16, columns["label"].long()


def publish(client: PSClient, parameters: dict[str, nn.Parameter]) -> None:
    """Give every server the parameters that it is to hold."""
    client.partition_dense_parameters(parameters)
    for server, names in client.ps_to_parameter.items():
        client.push_dense_parameters([Tensor(name, parameters[name].detach()) for name in names], server, 0)


def train(client: PSClient, model: nn.Module, steps: int) -> None:
    """Pull what the servers have, push what it should change by."""
    parameters = dict(model.named_parameters())
    publish(client, parameters)
    images, labels = digits("train")
    for step in range(steps):
        rows = torch.arange(64 * step, 64 * (step + 1)) % len(labels)
        pulled, _ = client.pull_dense_parameters()
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(pulled[name])
        model.zero_grad()
        F.cross_entropy(model(images[rows]), labels[rows]).backward()
        gradients = [Tensor(name, parameter.grad) for name, parameter in parameters.items()]
        accepted, _ = client.push_gradients(gradients, [], LEARNING_RATE, None)
        assert accepted


def main() -> None:
    """Train, and print the accuracy before and after."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_addrs", required=True, help="addresses of the servers, separated by commas")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(1)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 4 * 4, 10)]
    model, (images, labels) = nn.Sequential(*layers), digits("test")
    client = PSClient(args.ps_addrs.split(","))
    for steps in (0, args.steps):
        train(client, model, steps)
        with torch.no_grad():
            right = (model(images).argmax(1) == labels).float().mean()
        print(f"test accuracy: {right:.2f}")
    client.close()


if __name__ == "__main__":
    main()
