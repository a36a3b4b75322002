"""DataLoader: a description of how to load a data set, bound to a World when training starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
)
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data.dataloader import default_collate
from torch.utils.data.distributed import DistributedSampler

from trek.data.batching.order import Order, Tail
from trek.data.loaders.base import Loader
from trek.data.loaders.batch_size import check_batch_size, global_size, share_size
from trek.data.loaders.loader_options import require_one_order, require_options
from trek.data.loaders.loader_registry import find_loader
from trek.data.loaders.mapped import MappedLoader, SamplerOrder
from trek.data.loaders.stream import StreamLoader
from trek.data.loaders.table import TableLoader, tensors_of
from trek.data.loaders.tensors import TensorLoader
from trek.errors import InputError
from trek.world import World

if TYPE_CHECKING:
    from trek.data.table import Table


class DataLoader:
    """What to load and in which batches; the same arguments as torch's DataLoader where they mean the same.

    `dataset` is a torch Dataset, a tuple or dict of tensors, a Table, or any iterable of batches. `batch_size` counts
    samples per process, as in torch; `global_batch_size`, in its place, counts them over all processes, of which any
    number shares it out. Tensors are batched in memory, Tables where their rows lie, so that they may be larger than
    memory and are there once for all processes of a machine; a Table that must be computed is computed once for all
    epochs. With a sampler or a `collate_fn`, a row of a Table is a tuple of its columns. A shuffle depends on the seed
    and the epoch alone.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        global_batch_size: int | None = None,
        sampler: Sampler[int] | None = None,
        batch_sampler: BatchSampler | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        tail: Tail | None = None,
        columns: Sequence[str] | None = None,
        is_sharded: bool = False,
        **reading: Any,
    ) -> None:
        check_batch_size(batch_size, name="batch_size")
        if global_batch_size is not None:
            check_batch_size(global_batch_size, name="global_batch_size")
            if batch_size != 1:
                raise InputError(
                    f"batch_size={batch_size} (per process) and global_batch_size={global_batch_size} (over all "
                    "processes) are two ways to say one thing. Give one of them."
                )
        require_options(reading)
        given = {"batch_size": batch_size != 1, "global_batch_size": global_batch_size is not None, "shuffle": shuffle}
        given |= {"sampler": sampler is not None, "drop_last": drop_last, "tail": tail is not None}
        require_one_order(given, has_batch_sampler=batch_sampler is not None)
        if isinstance(sampler, DistributedSampler):
            # Sharding is ours to do: taking the user's shard as well would train on a share of a share.
            shuffle, sampler = sampler.shuffle, None
        self.dataset = dataset
        self.batch_size = batch_size
        self.global_batch_size = global_batch_size
        self.shuffle = shuffle
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.tail: Tail = tail or ("drop" if drop_last else "keep")
        self.columns = columns
        self.is_sharded = is_sharded
        self.reading = reading
        self._num_passes = 0
        self._table: Table | None = None

    def __len__(self) -> int:
        """Batches in an epoch of one process."""
        length = self.bind(World(), seed=0).num_batches
        if length is None:
            raise TypeError("this data has no known length")
        return length

    def __iter__(self) -> Iterator[Any]:
        """Plain iteration in one process, as torch's DataLoader does it: every pass is another epoch."""
        epoch, self._num_passes = self._num_passes, self._num_passes + 1
        return (batch.data for batch in self.bind(World(), seed=0).batches(epoch))

    def bind(self, world: World, *, seed: int) -> Loader:
        """The Loader of one rank of `world`."""
        plugin = find_loader(self.dataset)
        if plugin is not None:
            return plugin.bind(self, world=world, seed=seed)
        if hasattr(self.dataset, "to_torch"):  # a Table
            return self._of_table(world, seed)
        in_memory = self._in_memory()
        if in_memory is not None:
            tensors, assemble = in_memory
            order = self._order(len(tensors[0]), world, seed)
            return TensorLoader(tensors, order=order, world=world, assemble=assemble, on_device=_fits(tensors, world))
        if isinstance(self.dataset, IterableDataset) or not hasattr(self.dataset, "__getitem__"):
            return self._of_stream(world)
        return self._mapped(self.dataset, world, seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}  # computed rows are those of a machine

    @property
    def table(self) -> Table:
        """The chosen columns of the Table `dataset`, computed once for the length and for all epochs."""
        if self._table is None:
            from trek.data.batching.computed import evaluated

            in_order = self._needs_no_torch() and not self.shuffle and self.tail != "pad"
            self._table = evaluated(self.dataset, self.columns, in_order=in_order)
        return self._table

    def _of_table(self, world: World, seed: int) -> Loader:
        table = self.table
        if not self._needs_no_torch():
            from trek.data.loaders.table_rows import TableRows  # loads pyarrow, which starts a thread

            return self._mapped(TableRows(table), world, seed)
        tensors = tensors_of(table)
        if tensors is None:
            return TableLoader(table, order=self._order(table.num_rows, world, seed), world=world)
        order = self._order(len(tensors[0]), world, seed)
        return TensorLoader(tensors, order=order, world=world, on_device=_fits(tensors, world))

    def _mapped(self, dataset: Any, world: World, seed: int) -> Loader:
        order: Order | BatchSampler
        if self.batch_sampler is not None:
            order = self.batch_sampler
        elif self.sampler is not None:
            order = SamplerOrder(
                _length(self.sampler), self._global_size(world), seed=seed, tail=self.tail, sampler=self.sampler
            )
        else:
            order = self._order(_length(dataset), world, seed)
        reading = {**self.reading, "num_workers": self.num_workers, "collate_fn": self.collate_fn}
        return MappedLoader(dataset, order=order, world=world, seed=seed, reading=reading)

    def _order(self, num_rows: int, world: World, seed: int) -> Order:
        return Order(num_rows, self._global_size(world), shuffle=self.shuffle, seed=seed, tail=self.tail)

    def _global_size(self, world: World) -> int:
        return global_size(self.batch_size, self.global_batch_size, world)

    def _of_stream(self, world: World) -> Loader:
        if not isinstance(self.dataset, IterableDataset):
            return StreamLoader(self.dataset, world=world, is_sharded=self.is_sharded)
        size = self._global_size(world)
        reading = {**self.reading, "num_workers": self.num_workers, "collate_fn": self.collate_fn}
        stream = TorchDataLoader(self.dataset, batch_size=share_size(size, world), **reading)
        return StreamLoader(stream, world=world, is_sharded=self.is_sharded, batch_records=size)

    def _in_memory(self) -> tuple[Sequence[torch.Tensor], Callable[[Sequence[torch.Tensor]], Any]] | None:
        """The tensors to slice and how a batch is put together; None when the data is not plain tensors."""
        if not self._needs_no_torch():
            return None
        return _columns(self.dataset, self.columns)

    def _needs_no_torch(self) -> bool:
        is_ordered_by_us = self.sampler is None and self.batch_sampler is None
        return is_ordered_by_us and self.collate_fn in (None, default_collate)


def as_loader(source: Any, *, world: World, seed: int) -> Loader:
    """Bind whatever holds the data: a Loader, Trek's or torch's DataLoader, or any iterable of batches."""
    if isinstance(source, Loader):
        return source
    if isinstance(source, TorchDataLoader):
        source = _from_torch(source)
    if isinstance(source, DataLoader):
        return source.bind(world, seed=seed)
    if isinstance(source, str) or not hasattr(source, "__iter__"):
        raise InputError(
            f"a data loader must be iterable, got {type(source).__name__}. Return a trek.DataLoader, a torch "
            "DataLoader or any iterable of batches."
        )
    return StreamLoader(source, world=world)


def column_names(source: Any) -> list[str]:
    """Names of the columns that a batch of `source` is a list of; empty unless it is a DataLoader of a Table."""
    if isinstance(source, DataLoader) and hasattr(source.dataset, "to_torch"):
        return list(source.columns or source.table.columns)
    return []


def _from_torch(loader: TorchDataLoader[Any]) -> DataLoader:
    """The same loading in Trek's terms, so that it can be sharded and resumed."""
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return DataLoader(loader)
    reading = {
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
        "prefetch_factor": loader.prefetch_factor,
    }
    if type(loader.batch_sampler) is not BatchSampler:
        return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **reading)  # type: ignore[arg-type]
    batching = loader.batch_sampler
    sampler = batching.sampler
    if type(sampler) is SequentialSampler:
        order: dict[str, Any] = {"shuffle": False}
    elif type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(loader.dataset):  # type: ignore[arg-type]
        order = {"shuffle": True}
    else:
        order = {"sampler": sampler}
    return DataLoader(loader.dataset, batching.batch_size, drop_last=batching.drop_last, **order, **reading)


def _columns(
    dataset: Any, names: Sequence[str] | None
) -> tuple[Sequence[torch.Tensor], Callable[[Sequence[torch.Tensor]], Any]] | None:
    if isinstance(dataset, TensorDataset):
        return dataset.tensors, list
    if isinstance(dataset, Mapping) and dataset and all(isinstance(v, torch.Tensor) for v in dataset.values()):
        keys = list(names or dataset)
        return [dataset[key] for key in keys], lambda fields: dict(zip(keys, fields, strict=True))
    if isinstance(dataset, tuple) and dataset and all(isinstance(v, torch.Tensor) for v in dataset):
        return dataset, list
    return None


def _length(sized: Any) -> int:
    try:
        return len(sized)
    except TypeError:
        raise InputError(
            f"{type(sized).__name__} has no length, so its rows cannot be shared out. Give it __len__, or pass an "
            "IterableDataset."
        ) from None


def _fits(tensors: Sequence[torch.Tensor], world: World) -> bool:
    """Whether the tensors may live on the GPU: they take at most a quarter of what is free there."""
    device = world.device
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return sum(t.nbytes for t in tensors) * 4 <= free
