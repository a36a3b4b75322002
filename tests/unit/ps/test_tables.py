"""Tables against a dict of tensors, and what they promise about memory, admission, eviction and files."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trek.errors import ConfigError, InputError
from trek.ps.distinct_ids import distinct, owners, split_by_server, sum_duplicates
from trek.ps.id_index import IdIndex
from trek.ps.rules import Rule
from trek.ps.table import Table, as_tensor
from trek.ps.table_spec import Initial, TableSpec

IDS = st.lists(st.integers(-5, 30) | st.integers(-(2**63), 2**63 - 1), max_size=20)
SGD = Rule.named("SGD", lr=0.5)


def ids_of(values: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


def ones(count: int, dim: int = 2) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.ones((count, dim), np.float32)


def read(table: Table, ids: list[int]) -> torch.Tensor:
    return as_tensor(table.pull(ids_of(ids)), table.spec.dtype).float()


@given(st.lists(st.tuples(st.booleans(), IDS), max_size=30))
def test_the_index_is_a_dict(calls: list[tuple[bool, list[int]]]) -> None:
    index, model = IdIndex(), {}
    for is_added, ids in calls:
        if is_added:
            rows, num_new = index.add(ids_of(ids))
            assert num_new == len(set(ids) - model.keys())
            for one, row in zip(ids, rows.tolist(), strict=True):
                assert model.setdefault(one, row) == row
        else:
            index.remove(ids_of(sorted(set(ids))))
            for one in ids:
                model.pop(one, None)
        assert len(set(model.values())) == len(model) == len(index)
        known = list(model)
        assert index.find(ids_of(known)).tolist() == [model[one] for one in known]
    found, rows = index.items()
    assert dict(zip(found.tolist(), rows.tolist(), strict=True)) == model


def test_the_index_grows_and_shrinks_with_many_ids() -> None:
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.arange(-50_000, 50_000))
    index = IdIndex()
    for part in np.array_split(ids, 37):
        index.add(part)
    index.remove(ids[:40_000])
    assert (index.find(ids[:40_000]) < 0).all()
    assert len(set(index.find(ids[40_000:]).tolist())) == 60_000
    index.add(ids[:10_000])
    assert index.end == 100_000


@given(IDS)
def test_duplicates_are_summed_once(ids: list[int]) -> None:
    values = np.arange(2 * len(ids), dtype=np.float32).reshape(-1, 2)
    first, position = distinct(ids_of(ids))
    assert first.tolist() == list(dict.fromkeys(ids))
    assert first[position].tolist() == ids
    unique, sums = sum_duplicates(ids_of(ids), values)
    expected = {one: sum(values[k] for k in range(len(ids)) if ids[k] == one) for one in ids}
    assert {one: row.tolist() for one, row in zip(unique.tolist(), sums, strict=True)} == {
        one: total.tolist() for one, total in expected.items()
    }


@given(IDS, st.integers(1, 5))
def test_every_id_has_one_server(ids: list[int], num_servers: int) -> None:
    order, starts = split_by_server(ids_of(ids), num_servers=num_servers)
    owner = owners(ids_of(ids), num_servers=num_servers)
    assert sorted(order.tolist()) == list(range(len(ids)))
    for server in range(num_servers):
        assert (owner[order[starts[server] : starts[server + 1]]] == server).all()


@settings(deadline=None, max_examples=60)
@example(pushes=[[0], [1], [2, -1], [0, 0], [1], [2], [0], [-1]], dtype="float32", limit=24)
@given(
    pushes=st.lists(IDS, min_size=1, max_size=8),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    limit=st.sampled_from([None, 24, 100]),
)
def test_a_table_is_a_dict_of_tensors(
    tmp_path_factory: pytest.TempPathFactory, pushes: list[list[int]], dtype: str, limit: int | None
) -> None:
    spec = TableSpec.of(name="t", dim=3, dtype=dtype, memory_bytes=limit)
    table = Table(spec, folder=tmp_path_factory.mktemp("rows"))
    fresh = Table(spec.model_copy(update={"memory_bytes": None}))
    model: dict[int, torch.Tensor] = {}
    kind = getattr(torch, dtype)
    for version, ids in enumerate(pushes, start=1):
        gradients = np.random.default_rng(version).standard_normal((len(ids), 3)).astype(np.float32)
        table.push(ids_of(ids), gradients, rule=SGD, version=version)
        for one in set(ids):
            before = model.get(one, read(fresh, [one])[0])
            total = torch.zeros(3)
            for k in range(len(ids)):
                if ids[k] == one:
                    total += torch.from_numpy(gradients[k])
            model[one] = before.add(total, alpha=-0.5).to(kind).float()
        assert len(table) == len(model)
        stranger = next(one for one in itertools.count(123_456) if one not in model)
        asked = [*model, stranger]
        expected = torch.stack([*model.values(), read(fresh, [stranger])[0]])
        assert torch.equal(read(table, asked), expected)
    exported, values = table.export()
    assert set(exported.tolist()) == set(model)
    assert torch.equal(as_tensor(values, dtype).float(), read(table, exported.tolist()))
    table.close()
    fresh.close()


class RowsByHand:
    """What a table with Adagrad does, one row at a time."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec, self._fresh, self._aged_at = spec, Table(TableSpec.of(name="t", dim=2)), 0
        self.rows: dict[int, tuple[torch.nn.Parameter, torch.optim.Optimizer]] = {}
        self.touched: dict[int, int] = {}
        self.counts: Counter[int] = Counter()

    def push(self, ids: list[int], gradients: torch.Tensor, *, version: int) -> None:
        for one in dict.fromkeys(ids):
            if one not in self.rows:
                self.counts[one] += 1
                if self.counts[one] < self._spec.admit_after:
                    continue
                del self.counts[one]
                parameter = torch.nn.Parameter(read(self._fresh, [one])[0].clone())
                self.rows[one] = (parameter, torch.optim.Adagrad([parameter], lr=0.1, lr_decay=0))
            parameter, optimizer = self.rows[one]
            parameter.grad = sum((gradients[k] for k in range(len(ids)) if ids[k] == one), torch.zeros(2))
            optimizer.step()
            self.touched[one] = version

    def evict(self, kept: set[int], *, version: int) -> None:
        """Check what the table has evicted, and do the same; among rows of one version the table may choose."""
        if self._spec.max_age is not None:
            aged = {one for one in self.rows if version - self.touched[one] > self._spec.max_age}
            self.remove(aged)
        excess = len(self.rows) - self._spec.max_rows if self._spec.max_rows is not None else 0
        evicted = self.rows.keys() - kept
        assert kept <= self.rows.keys()
        assert len(evicted) == max(0, excess)
        latest = max((self.touched[one] for one in evicted), default=0)
        assert all(self.touched[one] >= latest for one in kept)
        self.remove(evicted)

    def remove(self, ids: set[int]) -> None:
        for one in ids:
            del self.rows[one], self.touched[one]


@settings(deadline=None, max_examples=40)
@given(
    pushes=st.lists(st.lists(st.integers(-3, 8), max_size=6), min_size=1, max_size=14),
    admit_after=st.integers(1, 3),
    max_age=st.sampled_from([None, 1, 3]),
    max_rows=st.sampled_from([None, 3, 6]),
    limit=st.sampled_from([None, 16, 48]),
)
def test_admission_eviction_and_files_go_together(
    tmp_path_factory: pytest.TempPathFactory, pushes: list[list[int]], **settings: int | None
) -> None:
    limit = settings.pop("limit")
    spec = TableSpec.of(name="t", dim=2, memory_bytes=limit, **settings)
    table, model = Table(spec, folder=tmp_path_factory.mktemp("rows")), RowsByHand(spec)
    rule = Rule.named("Adagrad", lr=0.1)
    for version, ids in enumerate(pushes, start=1):
        gradients = np.random.default_rng(version).standard_normal((len(ids), 2)).astype(np.float32)
        table.push(ids_of(ids), gradients, rule=rule, version=version)
        model.push(ids, torch.from_numpy(gradients), version=version)
        state = table.state()
        model.evict(set(state.ids.tolist()), version=version)
        for place, one in enumerate(state.ids.tolist()):
            parameter, optimizer = model.rows[one]
            torch.testing.assert_close(state.values[place], parameter.detach(), rtol=1e-6, atol=1e-7)
            torch.testing.assert_close(state.slots["sum"][place], optimizer.state[parameter]["sum"])
            assert state.touched[place] == model.touched[one]
        assert dict(zip(state.waiting_ids.tolist(), state.waiting_counts.tolist(), strict=True)) == model.counts
    table.close()


@pytest.mark.parametrize("kind", ["uniform", "normal", "constant", "zeros"])
def test_initial_values_do_not_depend_on_the_order_of_arrival(kind: Any) -> None:
    spec = TableSpec.of(name="t", dim=5, initial=Initial(kind=kind, value=3.0, low=-1, high=1, std=1), seed=7)
    ids = list(range(-2000, 2000))
    together, one_by_one = Table(spec), Table(spec)
    values = read(together, ids)
    for one in ids[::401]:
        one_by_one.push(ids_of([one]), np.zeros((1, 5), np.float32), rule=SGD, version=one + 3000)
    assert torch.equal(read(one_by_one, ids), values)
    assert len(together) == 0, "reading makes no rows"
    if kind in ("uniform", "normal"):
        scale = 1.0 if kind == "normal" else 3**-0.5
        assert abs(values.mean()) < 0.02
        assert abs(values.std() - scale) < 0.02
        assert len(torch.unique(values)) > 0.99 * values.numel()
    else:
        assert (values == (3.0 if kind == "constant" else 0.0)).all()
    assert torch.equal(read(Table(spec.model_copy(update={"seed": 8})), ids), values) == (kind in ("constant", "zeros"))


def test_a_row_is_admitted_at_its_nth_push() -> None:
    table = Table(TableSpec.of(name="t", dim=2, admit_after=3, initial=Initial(kind="zeros")))
    for version in (1, 2):
        table.push(ids_of([4, 4, 9]), ones(3), rule=SGD, version=version)
    assert len(table) == 0
    table.push(ids_of([4]), ones(1), rule=SGD, version=3)
    assert read(table, [4, 9]).tolist() == [[-0.5, -0.5], [0, 0]]
    table.push(ids_of([9, 4]), ones(2), rule=SGD, version=4)
    assert read(table, [4, 9]).tolist() == [[-1.0, -1.0], [-0.5, -0.5]]


def test_old_rows_are_evicted_and_begin_again() -> None:
    table = Table(TableSpec.of(name="t", dim=2, max_age=3, initial=Initial(kind="zeros")))
    adam = Rule.named("Adam", lr=0.5)
    table.push(ids_of([1, 2]), ones(2), rule=adam, version=1)
    first = read(table, [1])
    for version in (2, 3, 4):
        table.push(ids_of([2]), ones(1), rule=adam, version=version)
    assert len(table) == 2
    table.push(ids_of([2]), ones(1), rule=adam, version=5)
    assert (len(table), table.num_evicted) == (1, 1)
    assert read(table, [1]).tolist() == [[0, 0]]
    table.step = 0
    table.push(ids_of([1]), ones(1), rule=adam, version=6)
    assert torch.equal(read(table, [1]), first), "its optimizer state began again, too"


def test_capacity_keeps_the_rows_used_last() -> None:
    table = Table(TableSpec.of(name="t", dim=2, max_rows=10))
    for version in range(1, 31):
        table.push(ids_of([version]), ones(1), rule=SGD, version=version)
    assert sorted(table.export()[0].tolist()) == list(range(21, 31))


def test_rows_over_the_memory_limit_lie_in_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    spec = TableSpec.of(name="t", dim=4, memory_bytes=50 * 16)
    limited, free = Table(spec, folder=tmp_path), Table(spec.model_copy(update={"memory_bytes": None}))
    rule = Rule.named("Adagrad", lr=0.1)
    for version in range(1, 100):
        ids = rng.choice(np.arange(500), 20, replace=False)
        gradients = rng.standard_normal((20, 4)).astype(np.float32)
        for table in (limited, free):
            table.push(ids, gradients, rule=rule, version=version)
    assert limited.num_spilled >= len(free) - 50
    assert free.num_spilled == 0
    everything = list(range(500))
    assert torch.equal(read(limited, everything), read(free, everything))
    one, other = limited.state(), free.state()
    order, others = np.argsort(one.ids), np.argsort(other.ids)
    assert torch.equal(one.slots["sum"][order], other.slots["sum"][others])
    assert (one.touched[order] == other.touched[others]).all()
    limited.close()
    assert list(tmp_path.iterdir()) == []


def test_export_since_a_version_has_what_changed() -> None:
    table = Table(TableSpec.of(name="t", dim=2))
    for version in range(1, 6):
        table.push(ids_of([version, 100]), ones(2), rule=SGD, version=version)
    assert sorted(table.export(since=3)[0].tolist()) == [4, 5, 100]


def test_a_state_restores_everything() -> None:
    spec = TableSpec.of(name="t", dim=3, admit_after=2)
    rule = Rule.named("Adam", lr=0.1)
    rng = np.random.default_rng(0)

    def push(table: Table, version: int) -> None:
        generator = np.random.default_rng(version)
        ids = generator.integers(0, 40, 12)
        table.push(ids, generator.standard_normal((12, 3)).astype(np.float32), rule=rule, version=version)

    straight, first, second = Table(spec), Table(spec), Table(spec)
    for version in range(1, 20):
        push(straight, version)
    for version in range(1, 10):
        push(first, version)
    second.load(first.state(), rule=rule)
    for version in range(10, 20):
        push(second, version)
    ids = rng.permutation(40)
    assert np.array_equal(straight.pull(ids), second.pull(ids))
    assert len(straight) == len(second)


def test_memory_per_row_stays_within_its_bound() -> None:
    """1.25 times the bytes of its values and 16 bytes a row: as the table counts it, and as the system does.

    In a process of its own, whose memory nobody else uses.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(grow_table, 2_000_000, 1.25 * 64 + 16).result() <= 2_000_000 * (1.25 * 64 + 16)


def grow_table(count: int, bound: float) -> int:
    """Bytes that the process grew by with a table of so many rows; each row may take `bound` all the way."""
    ids, gradients = np.random.default_rng(0).permutation(count), np.zeros((50_000, 16), np.float32)
    compiling, table = (Table(TableSpec.of(name=name, dim=16)) for name in ("compiling", "t"))
    compiling.push(ids[:50_000], gradients, rule=SGD, version=1)
    compiling.close()
    before = resident_bytes()
    for step, part in enumerate(np.array_split(ids, 40), start=1):
        table.push(part, gradients, rule=SGD, version=step)
        assert table.num_bytes <= len(table) * bound
    grown = resident_bytes() - before
    table.close()
    return grown


def resident_bytes() -> int:
    ctypes.CDLL(None).malloc_trim(0)  # what temporary arrays have left behind is not the table's
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_wrong_specs_are_named() -> None:
    with pytest.raises(ConfigError, match="dim"):
        TableSpec.of(name="t", dim=0)
    with pytest.raises(ConfigError, match="folder"):
        Table(TableSpec.of(name="t", dim=1, memory_bytes=10))
    with pytest.raises(InputError, match="no optimizer 'LBFGS'"):
        Rule.named("LBFGS")


@given(
    ids=st.sets(st.sampled_from([*range(-9, 9), 2**63 - 1, -(2**63)]), max_size=20),
    since=st.integers(0, 2),
    max_rows=st.integers(1, 7),
    between=st.lists(st.sampled_from(["push", "evict", "add", "nothing"]), max_size=8),
)
def test_portions_have_every_row_that_stays_once_whatever_happens_in_between(
    ids: set[int], since: int, max_rows: int, between: list[str]
) -> None:
    table = Table(TableSpec.of(name="t", dim=1))
    first, added = sorted(ids), iter(range(100, 200))

    def push(some: list[int], version: int) -> None:
        block = np.ones((len(some), 1), np.float32)
        table.push(np.array(some, np.int64), block, rule=Rule.named("SGD"), version=version)

    push(first, 1)
    push(first[::2], 2)
    wanted = {0: set(first), 1: set(first[::2]), 2: set()}[since]
    found: list[int] = []
    actions, start, version = iter(between), 0, 3
    removed: set[int] = set()
    while True:
        part, start = table.portion(since=since, start=start, max_rows=max_rows)
        assert len(part.ids) <= max_rows
        found += part.ids.tolist()
        if not start:
            break
        action = next(actions, "nothing")
        left = [one for one in first if one not in removed]
        if action == "push" and left:
            push(left[:2], version)
        elif action == "add":
            push([next(added)], version)
        elif action == "evict" and left:
            removed.add(left[0])
            some, rows = table._index.items()
            table._remove(some, rows, some == left[0])
        version += 1
    assert len(found) == len(set(found))
    assert wanted - removed <= set(found)
