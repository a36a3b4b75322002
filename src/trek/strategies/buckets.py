"""Gradient buckets: gradients averaged over ranks in few messages, which are sent while the backward pass goes on.

The model itself is not wrapped: hooks on the parameters tell when a gradient is there. So it keeps its class, its
attributes and its methods, and parameters without a gradient are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from trek.errors import InputError

# As in torch's DistributedDataParallel: large enough for the network, small enough to be sent early.
_BUCKET_BYTES = 25 << 20

Average = Callable[[torch.Tensor], Callable[[], None]]
"""Starts to replace a tensor by its mean over ranks; calling the result waits for that."""
_Parameters = list[nn.Parameter]


class Bucket:
    """Parameters of one kind of numbers whose gradients are averaged in one message.

    The message includes a flag per parameter: a parameter with a gradient on any rank has one on all ranks afterwards,
    and one without any gradient keeps none, so that the optimizer skips it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, average: Average) -> None:
        self.parameters = list(parameters)
        self._average = average
        self._flags: dict[tuple[bool, ...], torch.Tensor] = {}
        self._message: torch.Tensor | None = None
        self._wait: Callable[[], None] = lambda: None
        self._has_grad: tuple[bool, ...] = ()

    @property
    def is_sent(self) -> bool:
        """Whether the message is under way."""
        return self._message is not None

    @torch.no_grad()
    def send(self) -> None:
        """Start averaging the gradients over ranks."""
        self._has_grad = tuple(p.grad is not None for p in self.parameters)
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        self._message = torch.cat([*(_dense(grad).reshape(-1) for grad in grads), self._flags_of(self._has_grad)])
        self._wait = self._average(self._message)

    @torch.no_grad()
    def receive(self) -> None:
        """Wait for the means, and make them the gradients."""
        message = self.discard()
        *parts, flags = torch.split(message, [*(p.numel() for p in self.parameters), len(self.parameters)])
        used = self._has_grad if all(self._has_grad) else [bool(flag) for flag in flags.tolist()]
        for parameter, part, is_used in zip(self.parameters, parts, used, strict=True):
            parameter.grad = part.view_as(parameter) if is_used else None

    def discard(self) -> torch.Tensor:
        """Wait for the message, and return it unused."""
        assert self._message is not None
        self._wait()
        message, self._message, self._wait = self._message, None, lambda: None
        return message

    def _flags_of(self, has_grad: tuple[bool, ...]) -> torch.Tensor:
        """Cached, because it seldom changes and a copy to a GPU would sync in every step."""
        if has_grad not in self._flags:
            self._flags[has_grad] = self.parameters[0].new_tensor(has_grad)
        return self._flags[has_grad]


class OverlappedBuckets:
    """The buckets of the parameters that one optimizer steps.

    Buckets are sent in one order on all ranks, the last layers' first. The first two steps send at their end: they show
    whether every parameter gets its gradient at once, on all ranks. If not, all steps do.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        average: Average,
        any_rank: Callable[[bool], bool],
        is_held: Callable[[], bool],
    ) -> None:
        self._buckets = [Bucket(group, average=average) for group in split_by_bytes(list(parameters)[::-1])]
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        self._any_rank = any_rank
        self._is_held = is_held
        self._num_steps = 0
        self._overlaps = False
        self._ready: dict[nn.Parameter, torch.Tensor | None] = {}
        """Gradients that are there, by parameter."""
        self._num_missing: dict[Bucket, int] = {}
        self._num_sent = 0
        self._is_repeated = False
        self._begin()
        self._handles = [
            p.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]
            for p in parameters
        ]

    def average(self) -> None:
        """Average all gradients over ranks; returns when they are there."""
        self._num_steps += 1
        if self._num_steps == 2:
            self._overlaps = not self._any_rank(self._is_repeated)
            if not self._overlaps:
                self.close()
        for bucket in self._buckets[self._num_sent :]:
            bucket.send()
        for bucket in self._buckets:
            bucket.receive()
        self._begin()

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        assert isinstance(parameter, nn.Parameter)
        if self._is_held():
            return
        if parameter in self._ready:
            self._on_repeated(parameter)
        if parameter not in self._ready:
            self._num_missing[self._bucket_of[parameter]] -= 1
        self._ready[parameter] = parameter.grad
        while self._overlaps and self._num_sent < len(self._buckets):
            bucket = self._buckets[self._num_sent]
            if self._num_missing[bucket]:
                return
            bucket.send()
            self._num_sent += 1

    def _on_repeated(self, parameter: nn.Parameter) -> None:
        self._is_repeated = True
        if not self._bucket_of[parameter].is_sent:
            return
        if self._ready[parameter] is parameter.grad:
            raise InputError(
                f"a parameter of shape {list(parameter.shape)} got another gradient after its first had been sent to "
                "the other ranks. Call backward once for each step, as in the first steps of the run, or set the "
                "strategy option flat_bytes to more bytes than the model has."
            )
        # The gradients were cleared without a step: this is a new one.
        for bucket in self._buckets[: self._num_sent]:
            bucket.discard()
        self._begin()

    def _begin(self) -> None:
        self._ready.clear()
        self._num_missing = {bucket: len(bucket.parameters) for bucket in self._buckets}
        self._num_sent = 0


def split_by_bytes(parameters: Iterable[nn.Parameter], *, bucket_bytes: int = _BUCKET_BYTES) -> list[_Parameters]:
    """Groups of one kind of numbers, in order, each of about `bucket_bytes`."""
    groups: list[_Parameters] = []
    open_groups: dict[torch.dtype, _Parameters] = {}
    for parameter in parameters:
        group = open_groups.get(parameter.dtype)
        if group is None or sum(p.nbytes for p in group) >= bucket_bytes:
            group = open_groups[parameter.dtype] = []
            groups.append(group)
        group.append(parameter)
    return groups


def _dense(grad: torch.Tensor) -> torch.Tensor:
    """Of a function that makes sparse gradients, without a module that says so."""
    return grad.to_dense() if grad.is_sparse else grad
