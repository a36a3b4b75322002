"""`compile`: every kind of model is really compiled, and an unknown backend is refused before training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import trek
from trek.errors import ConfigError

graphs: list[int] = []


def _count(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    graphs.append(len(graph.graph.nodes))
    return graph.forward


@pytest.fixture(autouse=True)
def _counting_backend() -> Iterator[None]:
    from torch._dynamo.backends import registry

    torch._dynamo.register_backend(_count, name="counting")
    torch._dynamo.reset()
    graphs.clear()
    yield
    torch._dynamo.reset()
    del registry._COMPILER_FNS["counting"], registry._BACKENDS["counting"]


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.net(points)  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "sequential": lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)),
    "linear": lambda: nn.Linear(6, 2),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(6, 2)), nn.Identity()),
    "encoder": lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True),
    "own": Own,
}


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_of_model_is_compiled_and_computes_the_same(kind: str) -> None:
    """An nn.Sequential, or any module of torch's own, used to run without being compiled, and nothing was said."""
    torch.manual_seed(0)
    plain = MODELS[kind]()
    points = torch.randn(3, 6)
    with trek.Traveler(compile="counting", show_progress=False, world=trek.World(device_name="cpu")) as tr:
        torch.manual_seed(0)
        model = tr.add_model(MODELS[kind]())
        plain.eval(), model.eval()
        assert torch.equal(model(points), plain(points))
        assert len(graphs) == 1
        assert list(model.state_dict()) == list(plain.state_dict())
        assert type(model) is type(plain)


def test_a_backend_that_does_not_exist_is_refused_before_training() -> None:
    """torch used to raise its own error at the first batch."""
    with pytest.raises(ConfigError, match=r"unknown backend 'inductr' of torch.compile.*inductor"):
        trek.Traveler(compile="inductr", world=trek.World(device_name="cpu"))
