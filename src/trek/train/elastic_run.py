"""ElasticRun: what the workers of an elastic group share of a run, and how one of them takes it over from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trek.train.loop.feed import Mark
from trek.world.seeds import seed_everything

if TYPE_CHECKING:
    from trek.train.run_parts import RunParts


class ElasticRun:
    """One worker's run, as its ElasticGroup sees it."""

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts
        self._step: Mark | None = None
        """Where the last step was completed."""
        self._read: Mark | None = None
        """How far this worker had read when its group ended."""
        self._feed_states: tuple[Mapping[str, Any] | None, Sequence[Mapping[str, Any]]] | None = None
        """The state of this worker's feed when its group ended, None for one that joins, and those of all workers."""

    @property
    def num_batches(self) -> int:
        """Batches read so far."""
        return self._parts.feed.position.batches

    @property
    def num_complete(self) -> int:
        """Batches in the state: those up to the last step."""
        return self._step.position.batches if self._step is not None else 0

    def check_replicas(self) -> None:
        """Raise `InputError` unless all workers of the group have built the same."""
        self._parts.optimization.check_replicas()

    def mark(self) -> None:
        """What is read so far is in the state, if it ends a step."""
        if self._parts.feed.position.group_batches == 0:
            self._step = self._parts.feed.mark()
            self._parts.resumed_gradients = None
            self._parts.journal.keep_batches()
            if self._parts.logical is not None:
                self._parts.logical.complete()

    def rewind(self) -> None:
        """Go back to the last step: what was read after it is read again."""
        parts = self._parts
        if parts.journal.is_validating:
            parts.leave_validation()
        if parts.logical is not None:
            parts.logical.rewind()
        if self._step is None:
            return
        self._read = parts.feed.mark()
        parts.feed.rewind(self._step)
        parts.optimization.drop_gradients()
        own = parts.feed.rank_state()
        self._feed_states = own, [own] * parts.world.size

    def state(self) -> dict[str, Any]:
        """Everything that all workers have in common, as plain data."""
        parts = self._parts
        with parts.strategy.sharing():
            models, shared = parts.optimization.model_states(), parts.shared_state()
        return {
            "models": models,
            "buffers": [_unsaved_buffers(model) for model in parts.optimization.models],
            "shared": shared,
            "num_segments": parts.num_segments,
            "agreement": parts.agreement.state_dict(),
            "has_told_nan": parts.journal.has_told_nan,
            "saved": [parts.saved_at, parts.saved_state, parts.save_request],
            "gradients": parts.resumed_gradients,
            "feeds": self._feed_states[1] if self._feed_states is not None else [parts.feed.rank_state()],
        }

    def take_start(self, state: Mapping[str, Any]) -> None:
        """Begin the run with what another worker has built."""
        with self._parts.strategy.sharing():
            self._parts.load_shared(state["models"], state["shared"])
        _load_buffers(self._parts.optimization.models, state["buffers"])

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Take over another worker's `state`."""
        parts, reported = self._parts, self._parts.journal.reported_records
        with parts.strategy.sharing():
            parts.load_shared(state["models"], state["shared"])
        _load_buffers(parts.optimization.models, state["buffers"])
        parts.num_segments = state["num_segments"]
        parts.saved_at, parts.saved_state, parts.save_request = state["saved"]
        parts.journal.has_told_nan = state["has_told_nan"]
        parts.resumed_gradients = state["gradients"]
        if parts.journal.reported_records > reported:
            parts.journal.load_rank_states([])  # the report has what this worker had collected
        position = state["shared"]["position"]
        if self._read is None:  # it joins; others come to what was agreed by the log
            parts.agreement.load_state_dict(state["agreement"])
            seed_everything(parts.settings.seed + parts.world.generation, rank=parts.world.rank)
            self._feed_states = None, state["feeds"]
        elif position["batches"] >= self._read.position.batches:  # the others have completed what was interrupted here
            parts.feed.rewind(self._read)
            parts.journal.keep_batches()
            self._feed_states = parts.feed.rank_state(), state["feeds"]
        parts.feed.position.load_state_dict(position)
        self._step = parts.feed.mark()

    def unreported(self) -> dict[str, Any]:
        """What this worker alone has, and would be lost with it: metrics that are not reported yet."""
        return self._parts.journal.rank_state()

    def take_unreported(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Replace what this worker has by that of several."""
        for named in self._parts.journal.reducers:
            named.reducer.reset()
        self._parts.journal.load_rank_states(states)

    def on_regrouped(self) -> None:
        """The group has other members now: read on with them, from the last step."""
        parts = self._parts
        parts.journal.drop_batches()
        parts.journal.follow_ranks()
        parts.show_workers()
        if self._feed_states is not None:
            own, all_ = self._feed_states
            parts.feed.load(parts.feed.position.state_dict(), own, ranks=all_)
        parts.load_resumed_gradients()
        self._feed_states = self._read = None
        self._step = parts.feed.mark()


def _unsaved_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that checkpoints leave out, since they are not persistent."""
    saved = model.state_dict(keep_vars=True)
    return {name: buffer for name, buffer in model.named_buffers() if name not in saved}


@torch.no_grad()
def _load_buffers(models: Sequence[nn.Module], buffers: Sequence[Mapping[str, torch.Tensor]]) -> None:
    for model, saved in zip(models, buffers, strict=True):
        for name, buffer in _unsaved_buffers(model).items():
            if buffer.layout is torch.strided and name in saved and buffer.shape == saved[name].shape:
                buffer.copy_(saved[name])
