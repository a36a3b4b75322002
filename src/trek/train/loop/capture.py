"""A training step as a CUDA graph: recorded once, then replayed without the CPU launching each kernel.

The first batches run eagerly, as warm-up. Then the step is recorded, and every batch with the same shapes and the same
role in a step (the last of an accumulated group, or an earlier one) is copied into the recorded inputs and replayed. A
step that is recorded must not wait for the device (`.item()`, `float(tensor)`, printing a tensor), nor return numbers
instead of tensors. Replays do not call `train_batch`, so its other side effects are not repeated.
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
"""Batches of further shapes run eagerly: each recording holds the memory of a whole step."""


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
    """Runs `step` for a batch, by replaying a recording if possible.

    `part` returns the role of the current batch: with accumulation, batches before the last only add to the gradients.
    `make_rates` is called at the first step, when the optimizers of a resumed run have been restored.
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
            raise ConfigError(
                f"capture needs a GPU to record a CUDA graph, but this process uses the device {str(device)!r}. "
                "Train without capture."
            )
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
        """The rates; drops recordings if settings that are baked into them have changed."""
        if self._rates is None:
            self._rates = self._make_rates()
        baked = self._rates.baked()
        if baked != self._baked:
            if self._recordings:
                self._recordings.clear()
                self._num_changes += 1
                self._check_replay_ratio()
            self._baked = baked
        return self._rates

    def _is_worth_recording(self, key: Any) -> bool:
        """Whether enough batches of this kind have run as warm-up."""
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
        """Record one step on copies of `leaves`, without computing it."""
        assert self._rates is not None
        copies = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        graph = torch.cuda.CUDAGraph()
        try:
            with self._rates.in_place(), torch.cuda.graph(graph):
                metrics = self._step(tree_unflatten(copies, spec))
        except RuntimeError as error:
            raise InputError(
                f"the training step cannot be captured as a CUDA graph: {str(error).splitlines()[0]} train_batch must "
                "not wait for the device (.item(), float(), printing tensors). Change it, or train without capture."
            ) from error
        numbers = [name for name, value in metrics.items() if not isinstance(value, torch.Tensor)]
        if numbers:
            raise InputError(
                f"train_batch must return tensors to be captured, got plain numbers for {', '.join(numbers)}, which "
                "every replay would repeat. Return tensors, or train without capture."
            )
        inputs = [leaf for leaf in copies if isinstance(leaf, torch.Tensor)]
        recording = _Recording(key, graph, inputs, {name: value.detach() for name, value in metrics.items()})
        self._recordings.append(recording)
        return recording

    def _check_replay_ratio(self) -> None:
        """Raise if recordings are dropped too often to be worthwhile."""
        if self._num_changes >= 20 and self._num_replays < 5 * self._num_changes:
            raise InputError(
                "capture is not possible: a setting of the optimizer changes with almost every step. With SGD, Adam "
                "and AdamW the learning rate may change, but momentum and betas may not (with OneCycleLR and "
                "CyclicLR, pass cycle_momentum=False). Change the optimizer or the schedule, or train without capture."
            )


def _shape(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf
