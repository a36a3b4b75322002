"""A training step as one CUDA graph: recorded once, then replayed without the CPU launching each kernel.

The first batches run as they are, to let libraries settle. Then a step is recorded, and every batch of the same shapes
is copied into the recorded inputs and replayed; a batch of other shapes runs as it is. What a step must not do to be
recorded: wait for the device (`.item()`, `float(tensor)`, printing a tensor), or return numbers instead of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from trek.errors import ConfigError, InputError

Step = Callable[[Any], Mapping[str, Any]]
_WARM_UP_BATCHES = 3


class CapturedStep:
    """Calls `step` for a batch, by replaying it where that is possible.

    `settings_key` tells what is baked into a recording besides shapes (learning rates); when it changes, the step is
    recorded anew.
    """

    def __init__(self, step: Step, *, device: torch.device, settings_key: Callable[[], Any]) -> None:
        if device.type != "cuda":
            raise ConfigError(f"capture records a CUDA graph and needs a GPU, but this process computes on {device}.")
        self._step = step
        self._settings_key = settings_key
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._num_warm = 0
        self._num_recordings = 0
        self._num_replays = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._key: Any = None
        self._inputs: list[torch.Tensor] = []
        self._outputs: dict[str, torch.Tensor] = {}

    def __call__(self, batch: Any) -> Mapping[str, Any]:
        """The metrics of one step on `batch`."""
        leaves, spec = tree_flatten(batch)
        if self._num_warm < _WARM_UP_BATCHES:
            self._num_warm += 1
            return self._on_side_stream(batch)
        key = (spec, [_shape(leaf) for leaf in leaves], self._settings_key())
        if self._graph is None or self._key != key:
            if self._graph is not None and self._key[:2] != key[:2]:
                return self._step(batch)
            self._record(leaves, spec)
            self._key = key
        assert self._graph is not None
        torch._foreach_copy_(self._inputs, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        self._graph.replay()
        self._num_replays += 1
        return {name: value.clone() for name, value in self._outputs.items()}

    def _on_side_stream(self, batch: Any) -> Mapping[str, Any]:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            metrics = self._step(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return metrics

    def _record(self, leaves: list[Any], spec: Any) -> None:
        """Record one step on copies of `leaves`; nothing is computed yet."""
        self._check_rhythm()
        held = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
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
        self._graph = graph
        self._inputs = [leaf for leaf in held if isinstance(leaf, torch.Tensor)]
        self._outputs = {name: value.detach() for name, value in metrics.items()}
        self._num_recordings += 1

    def _check_rhythm(self) -> None:
        """A recording is worth it only if it is replayed."""
        if self._num_recordings >= 20 and self._num_replays < 5 * self._num_recordings:
            raise InputError(
                "the learning rate changes with almost every step, and each change needs a new recording. Step the "
                "scheduler per epoch, or train without capture."
            )


def _shape(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf
