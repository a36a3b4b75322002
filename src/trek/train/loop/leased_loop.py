"""LeasedLoop: the training loop of asynchronous workers, each of which trains at its own pace what it leases.

The batches between two meetings are a segment. Within it, every worker takes shards from the job's coordinator and
trains them at its own pace, and depends on nobody. A segment ends where something is due that all workers do together
(a report, a validation, a checkpoint); if somebody is to join, to leave or to stop, as soon as what was handed out is
trained. A worker that dies delays nobody: others train its shard again, without what it had pushed of it.

At the end of a segment every record of it has been trained, and nobody is pushing. So a position is as exact as
elsewhere, and so is a checkpoint.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

from trek.data.loaders import Batch, Loader, as_loader
from trek.errors import ConfigError
from trek.strategies.base import GroupBroken
from trek.train.loop.feed import to_device
from trek.train.loop.portions import Portion, portions, read_ahead
from trek.train.loop.position import Position
from trek.train.loop.segment import Segment, ShardWork
from trek.train.loop.training_loop import TrainingLoop

if TYPE_CHECKING:
    from trek.strategies.elastic_ps import ElasticServers
    from trek.train.loop.elastic_group import ElasticGroup

_FIRST_WAIT_S, _MAX_WAIT_S = 0.001, 0.02


class LeasedLoop(TrainingLoop):
    """The loop of one such worker."""

    strategy: ElasticServers
    group: ElasticGroup

    def __init__(self, *settings: Any, **parts: Any) -> None:
        """The arguments are those of a TrainingLoop."""
        super().__init__(*settings, **parts)
        self._job = hashlib.sha256(self.world.secret.encode()).hexdigest()[:12]
        self._has_told_stop = False
        self._pulled_for = 0
        """The generation for which everything was pulled: at its beginning, others may have loaded a checkpoint."""
        self._num_steps = 0
        """Of the run, when the segment began."""
        self._num_batches = 0
        """Of the run, when the segment began."""
        self._num_followed = 0
        """Batches of the run that the schedulers know of."""

    def train_batches(self, loader: Loader, data: Any) -> Generator[Any, None, bool]:
        """The rest of the epoch, up to the end of the run; False if the workers changed before."""
        position, agreement, generation = self.position, self.agreement, self.world.generation
        lanes = _Lanes(self.source(data), self.strategy, seed=self.settings.seed)
        while (segment := self._next_segment(lanes)) is not None:
            if agreement.is_meeting_due:
                agreement.is_meeting_due = False
                self.group.meet()
                return False
            yield from self._train_segment(segment, lanes)
            if position.epoch_batch < lanes.num_batches:
                agreement.next_batch = position.batches
                self.check()
                if self.world.generation != generation:
                    return False
        if position.epoch_batch == lanes.num_batches:
            self.end_epoch()
        return True

    def is_save_requested(self) -> bool:
        """Each worker has trained other batches, so the request of one counts for all."""
        is_own = super().is_save_requested()
        return self.group.together("save requested", partial(self.strategy.any, is_own))

    def _next_segment(self, lanes: _Lanes) -> Segment | None:
        position, plan = self.position, self.plan
        until = min(plan.next_batch(position), plan.length.batches or math.inf) - position.batches
        stop = min(lanes.num_batches, position.epoch_batch + until)
        if stop <= position.epoch_batch:
            return None
        return Segment(
            position.epoch_batch,
            int(stop),
            self.strategy.world.max_size,
            accumulate=self.settings.accumulate,
            max_lead=self.strategy.options.max_lead,
        )

    def _train_segment(self, segment: Segment, lanes: _Lanes) -> Generator[Any, None, None]:
        """Train shards until the segment is over; GroupBroken if somebody was lost, which only what follows minds."""
        start = replace(self.position)
        self._num_steps, self._num_batches = self.optimization.num_steps, start.batches
        self._num_followed = start.batches
        self.strategy.refresh(is_all=self.world.generation != self._pulled_for)
        self._pulled_for = self.world.generation
        shards = _Shards(self.group, segment, name=self._open(segment), wants_end=self._wants_end)
        with self.on_signals, self.instruments.bar(*self.bar_label(), start=start.epoch_batch) as bar:
            for work, is_again in shards:
                yield from self._train_shard(work, lanes, start, source=shards.source(work), is_again=is_again)
                bar.update((work.stop - work.start) / segment.num_lanes)
        self.strategy.settle()
        end = segment.end(shards.reach)
        self._go_to(lanes, start, end)
        self._follow(end - start.epoch_batch, is_over=True)
        self.state.num_segments += 1
        self.group.complete()
        if self.strategy.is_broken:
            raise GroupBroken

    def _open(self, segment: Segment) -> str:
        """Open the queue of a segment, and forget the one before the last: nobody can be there any more."""
        name, old = (f"{self._job}/{self.group.began_in}/{self.state.num_segments - back}" for back in (0, 2))
        self.group.open_shards(name, segment.plan, forgets=old)
        if self.strategy.world.is_leader:
            self.strategy.client.progress(prefix=f"{old}/", forget_prefix=f"{old}/")
        return name

    def _wants_end(self) -> bool:
        """Whether this worker knows of a reason to meet soon; that it is to stop, it says once."""
        is_stopping = self.stop.is_set and not self._has_told_stop
        self._has_told_stop = self.stop.is_set
        return is_stopping or self.group.wants_meeting or self.state.save_request is not None

    def _train_shard(
        self, work: ShardWork, lanes: _Lanes, start: Position, *, source: str, is_again: bool
    ) -> Generator[Any, None, None]:
        """The batches of a shard; of one that somebody began, those that are left.

        The last batch that was begun is trained again, since it may have several steps: servers know those they have.
        If servers find the push of a step too old, its batches are given to the caller's code again.
        """
        accumulate, first = self.settings.accumulate, work.start
        if is_again and (begun := self.strategy.num_begun(source)):
            first += (begun - 1) // accumulate * accumulate
        step: list[tuple[int, Portion]] = []
        for index, portion in enumerate(self._lane_portions(work, lanes, start.epoch, first), start=first):
            if not portion.num_samples and accumulate == 1:
                continue  # a short last batch has no row for this lane
            portion.data = to_device(portion.data, self.strategy.world.device)
            step.append((index, portion))
            if not portion.is_last:
                continue
            yield from self._train_step(step, work, lanes, start, source=source)
            while self.strategy.is_rejected:
                self.journal.drop_batches()
                yield from self._train_step(step, work, lanes, start, source=source)
            self.journal.keep_batches()
            step.clear()

    def _train_step(
        self, step: list[tuple[int, Portion]], work: ShardWork, lanes: _Lanes, start: Position, *, source: str
    ) -> Generator[Any, None, None]:
        """The batches of one step."""
        for index, portion in step:
            self._go_to(lanes, start, index + 1)
            self._follow(index - start.epoch_batch, is_over=False)
            self.strategy.begin_work(source, number=index - work.start)
            yield from self._train_batch(portion)

    def _train_batch(self, portion: Portion) -> Generator[Any, None, None]:
        """Give a batch to the caller's code."""
        self.optimization.begin(portion)
        self.group.is_in_batch = True
        with self.batch_context(portion):
            yield portion.data
        self.group.is_in_batch = False
        self.instruments.beat()
        self.archive.tell()

    def _lane_portions(self, work: ShardWork, lanes: _Lanes, epoch: int, first: int) -> Iterator[Portion]:
        weighted = portions(
            islice(lanes.batches(work.lane, epoch, first), work.stop - first),
            strategy=self.strategy,
            accumulate=self.settings.accumulate,
            records=lanes.sizes(epoch)[first : work.stop],
        )
        on_next = self.feed.on_next
        return weighted if on_next is None else read_ahead(weighted, on_next)

    def _go_to(self, lanes: _Lanes, start: Position, epoch_batch: int) -> None:
        """Set the position to where so many batches of the epoch are read."""
        position = self.position
        position.load_state_dict(start.state_dict())
        num_records = lanes.records_until(start.epoch, epoch_batch) - lanes.records_until(
            start.epoch, start.epoch_batch
        )
        position.epoch_batch, position.batches = epoch_batch, start.batches + epoch_batch - start.epoch_batch
        position.epoch_records, position.records = start.epoch_records + num_records, start.records + num_records

    def _follow(self, num_batches: int, *, is_over: bool) -> None:
        """Let the schedulers follow the run to where it has trained so many batches of the segment."""
        accumulate, batches = self.settings.accumulate, self._num_batches + num_batches
        steps = -(-num_batches // accumulate) if is_over else num_batches // accumulate
        followed = range(self._num_followed + 1, batches + 1)
        self._num_followed = max(self._num_followed, batches)
        self.optimization.follow(steps=self._num_steps + steps, batches=followed)


class _Shards:
    """The shards of one segment, as this worker gets them. Each is committed when the next one is asked for."""

    def __init__(self, group: ElasticGroup, segment: Segment, *, name: str, wants_end: Callable[[], bool]) -> None:
        self._group = group
        self._segment = segment
        self._name = name
        self._wants_end = wants_end
        self.reach = 0

    def source(self, work: ShardWork) -> str:
        """The name of the pushes of a shard."""
        return f"{self._name}/{work.number}"

    def __iter__(self) -> Iterator[tuple[ShardWork, bool]]:
        """Until the segment is over: shards, and whether somebody may have begun with each."""
        done: int | None = None
        wait_s = _FIRST_WAIT_S
        while True:
            if self._wants_end():
                self._group.close_shards(self._name)
            answer = self._group.next_shard(self._name, done=done, step=0)
            done = None
            if "lease" in answer:
                done, number, _, is_again = answer["lease"]
                wait_s = _FIRST_WAIT_S
                yield self._segment.work(number), is_again
            elif answer["is_done"]:
                self.reach = answer["reach"]
                return
            else:  # others are at work on the last ones, and may die
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, _MAX_WAIT_S)


class _Lanes:
    """The data of every lane, opened when it is needed. Reading goes on where it stands if the next shard follows."""

    def __init__(self, source: Any, strategy: ElasticServers, *, seed: int) -> None:
        self._source = source
        self._world = strategy.world
        self._seed = seed
        self._loaders: dict[int, Loader] = {}
        self._reading: dict[int, tuple[tuple[int, int], Iterator[Batch]]] = {}
        self._sizes: tuple[int, list[int], list[int]] = (-1, [], [])
        self.num_batches = self._loader(0).num_batches or 0

    def sizes(self, epoch: int) -> list[int]:
        """Records of each global batch."""
        if self._sizes[0] != epoch:
            sizes = self._loader(0).records(epoch) or []
            self._sizes = epoch, sizes, list(accumulate(sizes, initial=0))
        return self._sizes[1]

    def records_until(self, epoch: int, batch: int) -> int:
        """Records of the batches before `batch`."""
        self.sizes(epoch)
        return self._sizes[2][batch]

    def batches(self, lane: int, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of a lane from `start` on."""
        place, reading = self._reading.pop(lane, ((-1, -1), iter(())))
        if place != (epoch, start):
            reading = self._loader(lane).batches(epoch, start=start)
        for number, batch in enumerate(reading, start=start + 1):
            self._reading[lane] = (epoch, number), reading
            yield batch

    def _loader(self, lane: int) -> Loader:
        if lane not in self._loaders:
            world = replace(self._world, rank=lane, size=self._world.max_size)
            self._loaders[lane] = _checked(as_loader(self._source, world=world, seed=self._seed))
        return self._loaders[lane]


def _checked(loader: Loader) -> Loader:
    if loader.num_batches is None or loader.records(0) is None or loader.order_state():
        raise ConfigError(
            "asynchronous workers share out data whose batches depend on the epoch alone: a dataset with a length, "
            "without a sampler of its own. Use such a dataset, or strategy_options={'mode': 'sync'}."
        )
    return loader
