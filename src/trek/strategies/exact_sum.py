"""ExactSum: gradients of a fixed number of logical workers, summed in a fixed order, whichever process computed them.

The work of an elastic run in `exact` mode is cut into as many logical workers as there may be processes. A process
computes those of its own one after the other, each with gradients of its own. The sum then has the same terms in the
same order with any number of processes, and so the same bits. Buffers of the model (running statistics) are those of
logical worker 0 after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from trek.strategies.buckets import split_by_bytes
from trek.world import World

SumInOrder = Callable[[Mapping[int, torch.Tensor]], torch.Tensor]
"""The sum of the messages of all logical workers, of which this process has some, by their numbers."""


class ExactSum:
    """The logical workers of one process."""

    def __init__(self, num_logical: int) -> None:
        self.num_logical = num_logical
        self._held: dict[int, dict[nn.Parameter, torch.Tensor]] = {}
        self._current: int | None = None

    def ranks_of(self, world: World) -> list[int]:
        """The logical workers that a process computes."""
        return list(range(world.rank, self.num_logical, world.size))

    def begin(self, logical: int, parameters: Sequence[nn.Parameter]) -> None:
        """Gradients computed from now on are those of `logical`, added to what it has accumulated."""
        self._current = logical
        held = self._held.pop(logical, {})
        for parameter in parameters:
            parameter.grad = held.get(parameter)

    def end(self, parameters: Sequence[nn.Parameter]) -> None:
        """Keep what the current logical worker has accumulated."""
        if self._current is not None:
            self._held[self._current] = {p: p.grad for p in parameters if p.grad is not None}
            self._current = None

    def clear(self) -> None:
        """Forget all gradients: they are applied, or computed again."""
        self._held.clear()
        self._current = None

    @torch.no_grad()
    def average(self, parameters: Sequence[nn.Parameter], *, sum_in_order: SumInOrder) -> None:
        """Replace gradients by the mean over all logical workers. A parameter without any keeps none."""
        self.end(parameters)
        for group in split_by_bytes(parameters, bucket_bytes=sum(p.nbytes for p in parameters) + 1):
            messages = {logical: _message(group, held) for logical, held in self._held.items()}
            total = sum_in_order(messages).div_(self.num_logical)
            *parts, flags = torch.split(total, [*(p.numel() for p in group), len(group)])
            for parameter, part, is_used in zip(group, parts, flags.tolist(), strict=True):
                parameter.grad = part.view_as(parameter) if is_used else None
        self.clear()


def _message(parameters: Sequence[nn.Parameter], held: Mapping[nn.Parameter, torch.Tensor]) -> torch.Tensor:
    """The gradients of one logical worker, and for each parameter whether it has one."""
    grads = [held[p] if p in held else torch.zeros_like(p) for p in parameters]
    dense = [(grad.to_dense() if grad.is_sparse else grad).reshape(-1) for grad in grads]
    return torch.cat([*dense, parameters[0].new_tensor([float(p in held) for p in parameters])])


def sum_messages(messages: Sequence[torch.Tensor]) -> torch.Tensor:
    """In the order given, as every process adds them."""
    total = messages[0].clone()
    for message in messages[1:]:
        total.add_(message)
    return total
