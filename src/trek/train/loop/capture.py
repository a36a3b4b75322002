"""A training step as a CUDA graph: recorded once, then replayed without the CPU launching each kernel.

The first batches run as they are, to let libraries settle. Then the step is recorded, and every batch that has the same
shapes and does the same part of a step (the last of an accumulated group, or one before it) is copied into the recorded
inputs and replayed. What a step must not do to be recorded: wait for the device (`.item()`, `float(tensor)`, printing a
tensor), or return numbers instead of tensors. Replays do not call `train_batch`: what else it does is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from trek.errors import ConfigError, InputError
from trek.train.loop.device_rates import DeviceRates

StepFunction = Callable[[Any], Mapping[str, Any]]
_WARM_UP_BATCHES = 3
_MAX_RECORDINGS = 8
"""Batches of further shapes run as they are: each recording holds the memory of a whole step."""


@dataclass
class _Recording:
    key: Any
    graph: torch.cuda.CUDAGraph
    inputs: list[torch.Tensor]
    outputs: dict[str, torch.Tensor]


@dataclass
class _Seen:
    key: Any
    count: int = 0


class CapturedStep:
    """Calls `step` for a batch, by replaying it where that is possible.

    `part` tells what of a step comes now: with accumulation, batches before the last only add to the gradients.
    `make_rates` is called at the first step, when a resumed run has its optimizers as they were.
    """

    def __init__(
        self,
        step: StepFunction,
        *,
        device: torch.device,
        part: Callable[[], Any],
        make_rates: Callable[[], DeviceRates],
    ) -> None:
        if device.type != "cuda":
            raise ConfigError(f"capture records a CUDA graph and needs a GPU, but this process computes on {device}.")
        self._step = step
        self._part = part
        self._make_rates = make_rates
        self._rates: DeviceRates | None = None
        self._baked: list[Any] = []
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._seen: list[_Seen] = []
        self._recordings: list[_Recording] = []
        self._num_changes = 0
        self._num_replays = 0

    def __call__(self, batch: Any) -> Mapping[str, Any]:
        """The metrics of one step on `batch`."""
        rates = self._current_rates()
        leaves, spec = tree_flatten(batch)
        key = (self._part(), [_shape(leaf) for leaf in leaves], spec)
        recording = next((one for one in self._recordings if one.key == key), None)
        if recording is None:
            if not self._is_worth_recording(key):
                return self._on_side_stream(batch)
            recording = self._record(key, leaves, spec)
        torch._foreach_copy_(recording.inputs, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        rates.fill()
        recording.graph.replay()
        self._num_replays += 1
        return {name: value.clone() for name, value in recording.outputs.items()}

    def _current_rates(self) -> DeviceRates:
        """The rates; recordings that repeat settings which have changed are dropped."""
        if self._rates is None:
            self._rates = self._make_rates()
        baked = self._rates.baked()
        if baked != self._baked:
            if self._recordings:
                self._recordings.clear()
                self._num_changes += 1
                self._check_rhythm()
            self._baked = baked
        return self._rates

    def _is_worth_recording(self, key: Any) -> bool:
        """Whether batches of this kind have come often enough to have settled."""
        seen = next((one for one in self._seen if one.key == key), None)
        if seen is None:
            if len(self._seen) >= _MAX_RECORDINGS:
                return False
            seen = _Seen(key)
            self._seen.append(seen)
        seen.count += 1
        return seen.count > _WARM_UP_BATCHES

    def _on_side_stream(self, batch: Any) -> Mapping[str, Any]:
        assert self._rates is not None
        self._rates.fill()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream), self._rates.in_place():
            metrics = self._step(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return metrics

    def _record(self, key: Any, leaves: list[Any], spec: Any) -> _Recording:
        """Record one step on copies of `leaves`; nothing is computed yet."""
        assert self._rates is not None
        held = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        graph = torch.cuda.CUDAGraph()
        try:
            with self._rates.in_place(), torch.cuda.graph(graph):
                metrics = self._step(tree_unflatten(held, spec))
        except RuntimeError as error:
            raise InputError(
                f"the training step cannot be captured as a CUDA graph: {str(error).splitlines()[0]} Keep train_batch "
                "from waiting for the device (.item(), float(), printing tensors), or train without capture."
            ) from error
        numbers = [name for name, value in metrics.items() if not isinstance(value, torch.Tensor)]
        if numbers:
            raise InputError(
                f"train_batch returned {', '.join(numbers)} as plain numbers, which a captured step would repeat for "
                "ever. Return tensors, or train without capture."
            )
        inputs = [leaf for leaf in held if isinstance(leaf, torch.Tensor)]
        recording = _Recording(key, graph, inputs, {name: value.detach() for name, value in metrics.items()})
        self._recordings.append(recording)
        return recording

    def _check_rhythm(self) -> None:
        """A recording is worth it only if it is replayed."""
        if self._num_changes >= 20 and self._num_replays < 5 * self._num_changes:
            raise InputError(
                "a setting of the optimizer that a recorded step repeats changes with almost every step. The learning "
                "rate may move with SGD, Adam and AdamW; momentum and betas may not (OneCycleLR and CyclicLR: pass "
                "cycle_momentum=False). Change the optimizer or the schedule, or train without capture."
            )


def _shape(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf
