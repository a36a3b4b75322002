"""RunState: everything that a run is, on one rank. It owns every way in which a run is captured and restored.

    a checkpoint        `snapshot` and `load`         shared() once, rank() of every rank
    a worker joins      `handover` and `take`         what a snapshot has, and what only matters while the run lives
    a broken group      `mark` and `rewind`           back to the last complete step
    a dry pass          `held`                        back to its beginning, in place, with what the user's objects were

A new piece of state is added to `shared`, `rank` or `_live`, and nowhere else. Knows nothing about who the ranks are,
nor about files: see `group` and `checkpointing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from trek.data.loaders import Loader
from trek.phases import reached
from trek.strategies import Strategy
from trek.train.checkpointing.checkpoint_folder import Snapshot, check_savable
from trek.train.loggers.base import Logger
from trek.train.loop.done_log import DoneLog
from trek.train.loop.feed import Feed, Mark
from trek.train.loop.held_objects import HeldObjects
from trek.train.loop.logical_workers import LogicalWorkers
from trek.train.loop.optimization import Optimization
from trek.train.loop.position import Position
from trek.train.loop.stop_agreement import StopAgreement
from trek.train.loop.worker_group import WorkerGroup
from trek.train.metrics.journal import Journal
from trek.wire.values import encode
from trek.world.seeds import random_state, restore_random_state, seed_everything

MADE_BY_SAVING = ("extras",)
"""Names of holders whose state is made by callbacks when a checkpoint is saved, and only then."""


class RunState:
    """The state of one rank's run; its parts are changed by the loop that they belong to."""

    def __init__(
        self,
        strategy: Strategy,
        *,
        seed: int,
        optimization: Optimization,
        feed: Feed,
        journal: Journal,
        agreement: StopAgreement,
        logical: LogicalWorkers | None = None,
    ) -> None:
        self.optimization = optimization
        self.feed = feed
        self.journal = journal
        self.agreement = agreement
        self.logical = logical
        """The shares of a batch that this process computes, in `exact` mode of an elastic run."""
        self.holders: dict[str, Any] = {}
        """What the user added: objects with `state_dict` and `load_state_dict`, by name."""
        self.done = DoneLog()
        """What was done since the last step, in an elastic run."""
        self.num_segments = 0
        """How often workers that lease have come together."""
        self.save_request: str | None = None
        """The id of the checkpoint to take at the next place where the run can continue; None if none was requested."""
        self.saved_at = -1
        """Number of batches trained when the run was last saved."""
        self._saved_as: Sequence[int] | None = None
        self._strategy = strategy
        self._seed = seed
        self._resumed_gradients: tuple[list[Any], Mapping[str, Any]] | None = None
        """The gradients of an unfinished accumulation window in the checkpoint that the run resumed from: those of each
        rank, and those that all have."""
        self._step: Mark | None = None
        """Where the last step was completed."""
        self._read: Mark | None = None
        """How far this worker had read when its group ended."""
        self._reading: tuple[Mapping[str, Any] | None, Sequence[Mapping[str, Any]]] | None = None
        """The state of this worker's feed when its group ended, None for one that joins, and those of all workers."""

    @property
    def position(self) -> Position:
        """The position of the run in its data."""
        return self.feed.position

    @property
    def num_complete(self) -> int:
        """Batches up to the last complete step."""
        return self._step.position.batches if self._step is not None else 0

    @property
    def progress(self) -> tuple[int, int]:
        """How far the run is; of two workers, the one with the greater progress has the state that counts."""
        return self.num_complete, len(self.done)

    @property
    def is_saved(self) -> bool:
        """Whether a checkpoint has all of it: beside batches, also the end of an epoch and a validation."""
        return self._saved_as == self._fingerprint()

    # -- a checkpoint

    def shared(self) -> dict[str, Any]:
        """What is the same on every rank, without the models."""
        return {
            "position": self.position.state_dict(),
            "optimization": self.optimization.state_dict(),
            "journal": self.journal.state_dict(),
            "stateful": {name: holder.state_dict() for name, holder in self.holders.items()},
        }

    def rank(self) -> dict[str, Any]:
        """What this rank alone has."""
        return {
            "feed": self.feed.rank_state(),
            "journal": self.journal.rank_state(),
            "gradients": self.optimization.gradients(),
        }

    def snapshot(self) -> Snapshot:
        """The content of a checkpoint; called on all ranks together."""
        self.optimization.sync_buffers()
        models, shared = self.optimization.model_states(), self.shared()
        snapshot = Snapshot(models=models, shared=shared, ranks=self._strategy.gather(self.rank()))
        self.saved_at, self._saved_as = self.position.batches, self._fingerprint()
        return snapshot

    def load(self, snapshot: Snapshot) -> None:
        """Restore a checkpoint; if the number of ranks changed, the leader takes over the metric sums of all."""
        self._load_shared(snapshot.models, snapshot.shared)
        world, saved = self._strategy.world, len(snapshot.ranks)
        own = snapshot.ranks[world.rank] if world.rank < saved else None
        feeds = [one["feed"] for one in snapshot.ranks]
        self.feed.load(snapshot.shared["position"], own["feed"] if own else None, ranks=feeds)
        if world.size == saved:
            self.journal.load_rank_states([snapshot.ranks[world.rank]["journal"]])
        elif world.is_leader:
            self.journal.load_rank_states([one["journal"] for one in snapshot.ranks])
        self._resumed_gradients = [one["gradients"] for one in snapshot.ranks], snapshot.shared["optimization"]
        self._load_resumed_gradients()

    def check_savable(self) -> None:
        """Raise `InputError` if the user's objects have a state that a checkpoint cannot hold; saves nothing."""
        for model in self.optimization.models:
            check_savable(model)
        of_user = {name: _state_of(holder) for name, holder in self.holders.items() if name not in MADE_BY_SAVING}
        encode({"stateful": of_user, "optimization": self.optimization.own_state()})

    # -- a worker that joins, or is behind

    def handover(self) -> dict[str, Any]:
        """What every worker of the group has in common, as plain data."""
        reached("giving")
        with self._strategy.sharing():
            models, shared = self.optimization.model_states(), self.shared()
        buffers = [_unsaved_buffers(model) for model in self.optimization.models]
        return {"models": models, "buffers": buffers, "shared": shared, "live": self._live()}

    def take(self, handover: Mapping[str, Any], *, is_start: bool = False) -> None:
        """Take over another worker's state; at the start of a run, only what that worker has built."""
        reported = self.journal.reported_records
        with self._strategy.sharing():
            self._load_shared(handover["models"], handover["shared"])
        _load_buffers(self.optimization.models, handover["buffers"])
        if is_start:
            return
        reached("taking")
        if self.journal.reported_records > reported:
            self.journal.load_rank_states([])  # the report has what this worker had collected
        self._take_live(handover["live"])
        self._take_reading(handover["shared"]["position"], handover["live"])

    def begin_generation(self) -> None:
        """The group has other ranks: read on with them, from the last step."""
        self.journal.drop_batches()
        self.journal.follow_ranks()
        if self._reading is not None:
            own, ranks = self._reading
            self.feed.load(self.position.state_dict(), own, ranks=ranks)
        self._load_resumed_gradients()
        self._reading = self._read = None
        self._step = self.feed.mark()

    def unreported(self) -> dict[str, Any]:
        """What would be lost with this worker: metrics that are not reported yet."""
        return self.journal.rank_state()

    def take_unreported(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Replace what this worker has by that of several."""
        for named in self.journal.reducers:
            named.reducer.reset()
        self.journal.load_rank_states(states)

    # -- back to the last step

    def mark(self) -> None:
        """If the last batch ended a step, that step is complete: nothing before it is repeated."""
        if self.position.group_batches == 0:
            self._step = self.feed.mark()
            self._resumed_gradients = None
            self.journal.keep_batches()
            if self.logical is not None:
                self.logical.complete()

    def rewind(self) -> None:
        """Go back to the last complete step: what was read after it is read again."""
        if self.journal.is_validating:
            self.leave_validation()
        if self.logical is not None:
            self.logical.rewind()
        if self._step is None:
            return
        self._read = self.feed.mark()
        self.feed.rewind(self._step)
        self.optimization.drop_gradients()
        own = self.feed.rank_state()
        self._reading = own, [own] * self._strategy.world.size

    def leave_validation(self) -> None:
        """Leave a validation without a result."""
        self.journal.leave_validation()
        self.optimization.swap_averages()
        self.optimization.set_mode(is_training=True)

    # -- back to where nothing had been read

    @contextmanager
    def held(self, *, training: Loader | None, validation: Loader | None, others: Sequence[Any]) -> Iterator[None]:
        """Within the block, nothing counts: at its end everything is what it was at its beginning, to the bit.

        The loaders are those that are read in the block, and `others` are objects of the user that it may change. The
        run has read nothing yet. Nothing is put back if the block raises an error.
        """
        held, random = HeldObjects(opaque=(Strategy, WorkerGroup, Loader, Logger)), random_state()
        loaders = [loader for loader in (training, validation) if loader is not None]
        read_again = [loader.read_from() for loader in loaders]
        if training is not None and training.keep_batches():
            held.leave(read_again.pop(0))
        held.hold([self.optimization, self.feed, self.journal, self.done], with_data=True)
        for read in read_again:
            held.hold_generators(read)
            held.hold(read.values(), with_data=False)
        held.hold([*others, *self.holders.values()], with_data=False)
        yield
        self.optimization.release_gradients()
        for metric in self.journal.metric_objects():
            if not held.knows(metric):  # made or first seen in the block, so it holds nothing else
                metric.reset()
        held.put_back()
        self.optimization.follow_restored()
        for loader in loaders:
            loader.give_again()
        restore_random_state(random)

    # -- parts

    def _load_shared(self, models: list[dict[str, torch.Tensor]], shared: Mapping[str, Any]) -> None:
        """Restore the models and what `shared` gave, but for the position."""
        self.optimization.load(models, shared["optimization"])
        self.journal.load_state_dict(shared["journal"])
        for name, holder in self.holders.items():
            if name in shared["stateful"]:
                holder.load_state_dict(shared["stateful"][name])

    def _live(self) -> dict[str, Any]:
        """What workers have in common only while the run lives: a checkpoint does not need it."""
        return {
            "num_segments": self.num_segments,
            "agreement": self.agreement.state_dict(),
            "has_told_nan": self.journal.has_told_nan,
            "saved": [self.saved_at, self._saved_as, self.save_request],
            "gradients": self._resumed_gradients,
            "feeds": self._reading[1] if self._reading is not None else [self.feed.rank_state()],
            "done": self.done.state_dict(),
        }

    def _take_live(self, live: Mapping[str, Any]) -> None:
        self.num_segments = live["num_segments"]
        self.saved_at, self._saved_as, self.save_request = live["saved"]
        self.journal.has_told_nan = live["has_told_nan"]
        self._resumed_gradients = live["gradients"]
        self.done.load_state_dict(live["done"])

    def _take_reading(self, position: Mapping[str, int], live: Mapping[str, Any]) -> None:
        """Read on at the `position` of the other workers."""
        if self._read is None:  # this worker joins; others come to the agreement by the log
            self.agreement.load_state_dict(live["agreement"])
            world = self._strategy.world
            seed_everything(self._seed + world.generation, rank=world.rank)
            self._reading = None, live["feeds"]
        elif position["batches"] >= self._read.position.batches:  # the others have completed what was interrupted here
            self.feed.rewind(self._read)
            self.journal.keep_batches()
            self._reading = self.feed.rank_state(), live["feeds"]
        self.position.load_state_dict(dict(position))
        self._step = self.feed.mark()

    def _load_resumed_gradients(self) -> None:
        if self._resumed_gradients is not None:
            self.optimization.load_gradients(*self._resumed_gradients)

    def _fingerprint(self) -> list[int]:
        """Differs if more than training has happened since a save: the end of an epoch, or a validation."""
        return [self.position.batches, self.position.epoch, int(bool(self.journal.metrics_at(self.position)))]


def _state_of(holder: Any) -> Any:
    try:
        return holder.state_dict()
    except Exception:  # noqa: BLE001 - it may have a state only later; where it fails in a save, the save says so
        return {}


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
