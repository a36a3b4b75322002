"""DataLoader: a description of how to load a data set, bound to a World when training starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
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
from trek.data.loaders.loader_options import (
    BATCHES,
    ITERABLE,
    NAMED_SAMPLES,
    NAMED_TENSORS,
    SAMPLES,
    TABLE,
    TENSORS,
    DataKind,
    given_options,
    require_meaning,
    require_one_order,
    require_options,
    require_reading,
)
from trek.data.loaders.loader_registry import find_loader
from trek.data.loaders.mapped import MappedLoader, SamplerOrder
from trek.data.loaders.stream import StreamLoader
from trek.data.loaders.table import TableLoader, tensors_of
from trek.data.loaders.tensors import TensorLoader
from trek.errors import InputError
from trek.world import World

if TYPE_CHECKING:
    from trek.data.table import Table

Assemble = Callable[[Sequence[torch.Tensor]], Any]
"""Puts a batch together from its columns."""


class DataLoader:
    """What to load and in which batches; the same arguments as torch's DataLoader where they mean the same.

    `dataset` is a torch Dataset, a tuple or dict of tensors, a Table, or any iterable of batches. `batch_size` counts
    samples per process, as in torch; `global_batch_size`, in its place, counts them over all processes, of which any
    number shares it out. Tensors are batched in memory, Tables where their rows lie, so that they may be larger than
    memory and are there once for all processes of a machine; a Table that must be computed is computed once for all
    epochs. With a sampler or a `collate_fn`, a row of a Table is a tuple of its columns. A shuffle depends on the seed
    and the epoch alone. Options that the data cannot follow are refused. Worker processes read datasets; tensors and
    Tables need none, and a warning says so.
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
        collate_fn = None if collate_fn is default_collate else collate_fn
        given = given_options(
            {
                "batch_size": batch_size,
                "global_batch_size": global_batch_size,
                "shuffle": shuffle,
                "drop_last": drop_last,
                "tail": tail,
                "sampler": sampler,
                "batch_sampler": batch_sampler,
                "collate_fn": collate_fn,
                "columns": columns,
                "is_sharded": is_sharded,
                "num_workers": num_workers,
                **reading,
            }
        )
        require_one_order(given)
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
        if find_loader(dataset) is None:
            require_reading(given)
            require_meaning(given, self._kind())
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
        kind = self._kind()
        if kind is BATCHES:
            return StreamLoader(self.dataset, world=world, is_sharded=self.is_sharded)
        if kind is ITERABLE:
            return self._of_iterable(world)
        if kind is TABLE:
            return self._of_table(world, seed)
        if kind in (TENSORS, NAMED_TENSORS):
            tensors, assemble = _in_memory(self.dataset, self.columns)
            return self._of_tensors(tensors, assemble, world, seed)
        return self._mapped(self._samples(), world, seed)

    def _kind(self) -> DataKind:
        """How the data is read, with these options."""
        has_columns = isinstance(self.dataset, Mapping) or _is_table(self.dataset)
        if _is_table(self.dataset) or _is_in_memory(self.dataset):
            if not self._needs_no_torch():
                return NAMED_SAMPLES if has_columns else SAMPLES
            return TABLE if _is_table(self.dataset) else NAMED_TENSORS if has_columns else TENSORS
        if isinstance(self.dataset, IterableDataset):
            return ITERABLE
        return SAMPLES if hasattr(self.dataset, "__getitem__") else BATCHES

    def _samples(self) -> Dataset[Any]:
        """The data sample by sample, for samplers and collate functions."""
        if _is_table(self.dataset):
            from trek.data.loaders.table_rows import TableRows  # loads pyarrow, which starts a thread

            return TableRows(self.table)
        if _is_in_memory(self.dataset) and isinstance(self.dataset, Mapping):
            return NamedTensors(_chosen(self.dataset, self.columns))
        if _is_in_memory(self.dataset) and isinstance(self.dataset, tuple):
            return TensorDataset(*self.dataset)
        samples: Dataset[Any] = self.dataset
        return samples

    def _of_tensors(self, tensors: Sequence[torch.Tensor], assemble: Assemble, world: World, seed: int) -> Loader:
        order, on_device = self._order(len(tensors[0]), world, seed), _fits(tensors, world)
        pins = bool(self.reading.get("pin_memory")) and not on_device
        return TensorLoader(
            tensors, order=order, world=world, assemble=_pinning(assemble) if pins else assemble, on_device=on_device
        )

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
        tensors = tensors_of(self.table)
        if tensors is not None:
            return self._of_tensors(tensors, list, world, seed)
        assemble = _pinning(list) if self.reading.get("pin_memory") else list
        order = self._order(self.table.num_rows, world, seed)
        return TableLoader(self.table, order=order, world=world, assemble=assemble)

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

    def _of_iterable(self, world: World) -> Loader:
        size = self._global_size(world)
        reading = {**self.reading, "num_workers": self.num_workers, "collate_fn": self.collate_fn}
        stream = TorchDataLoader(
            self.dataset, batch_size=share_size(size, world), drop_last=self.tail == "drop", **reading
        )
        return StreamLoader(stream, world=world, is_sharded=self.is_sharded, batch_records=size)

    def _needs_no_torch(self) -> bool:
        is_ordered_by_us = self.sampler is None and self.batch_sampler is None
        return is_ordered_by_us and self.collate_fn is None


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
    if isinstance(source, DataLoader) and _is_table(source.dataset):
        return list(source.columns or source.table.columns)
    return []


def _from_torch(loader: TorchDataLoader[Any]) -> DataLoader:
    """The same loading in Trek's terms, so that it can be sharded and resumed."""
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return DataLoader(loader)
    reading: dict[str, Any] = {"collate_fn": loader.collate_fn, "pin_memory": loader.pin_memory}
    workers: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
        "prefetch_factor": loader.prefetch_factor,
    }
    if type(loader.batch_sampler) is not BatchSampler:
        return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **reading, **workers)  # type: ignore[arg-type]
    batching = loader.batch_sampler
    sampler = batching.sampler
    if type(sampler) is SequentialSampler:
        order: dict[str, Any] = {"shuffle": False}
    elif type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(loader.dataset):  # type: ignore[arg-type]
        order = {"shuffle": True}
    else:
        order = {"sampler": sampler}
    if not _is_in_memory(loader.dataset) or loader.collate_fn is not default_collate or "sampler" in order:
        reading |= workers  # else there is nothing for them to read
    return DataLoader(loader.dataset, batching.batch_size, drop_last=batching.drop_last, **order, **reading)


class NamedTensors(Dataset[dict[str, torch.Tensor]]):
    """A dict of tensors sample by sample: a dict of one row each."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors

    def __len__(self) -> int:
        return min(len(tensor) for tensor in self._tensors.values())

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {name: tensor[row] for name, tensor in self._tensors.items()}


def _is_table(dataset: Any) -> bool:
    return hasattr(dataset, "to_torch")


def _is_in_memory(dataset: Any) -> bool:
    """Whether the data is plain tensors: in a TensorDataset, a dict or a tuple."""
    if isinstance(dataset, TensorDataset):
        return True
    values = tuple(dataset.values()) if isinstance(dataset, Mapping) else dataset
    return isinstance(values, tuple) and bool(values) and all(isinstance(value, torch.Tensor) for value in values)


def _in_memory(dataset: Any, names: Sequence[str] | None) -> tuple[Sequence[torch.Tensor], Assemble]:
    """The tensors to slice and how a batch is put together."""
    if isinstance(dataset, TensorDataset):
        return dataset.tensors, list
    if not isinstance(dataset, Mapping):
        return dataset, list
    chosen = _chosen(dataset, names)
    return list(chosen.values()), lambda fields: dict(zip(chosen, fields, strict=True))


def _chosen(tensors: Mapping[str, torch.Tensor], names: Sequence[str] | None) -> dict[str, torch.Tensor]:
    for name in names or ():
        if name not in tensors:
            raise InputError(f"column {name!r} does not exist. There are: {', '.join(tensors)}.")
    return {name: tensors[name] for name in names or tensors}


def _pinning(assemble: Assemble) -> Assemble:
    """`assemble`, over pages that a GPU can copy from by itself where there is one."""
    if not torch.cuda.is_available():
        return assemble
    return lambda fields: assemble([field.pin_memory() for field in fields])


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
