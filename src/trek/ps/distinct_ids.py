"""Distinct ids of a batch, the sums of what belongs to the same id, and which server each id lives on."""

from __future__ import annotations

from typing import Any

import numpy as np

from trek.ps.compiled import compiled
from trek.ps.id_index import Ids, mix, slot_of

Floats = np.ndarray[Any, np.dtype[np.float32]]
Order = np.ndarray[Any, np.dtype[np.int64]]


def distinct(ids: Ids) -> tuple[Ids, Order]:
    """Every id once, in the order of first appearance, and for every given id its position among those."""
    first = np.empty(len(ids), np.int64)
    position = np.empty(len(ids), np.int64)
    slots = np.full(2 * len(ids) + 1, -1, np.int64)
    count = _distinct(ids, first, position, slots)
    return first[:count].copy(), position


def sum_duplicates(ids: Ids, values: Floats) -> tuple[Ids, Floats]:
    """Every id once, with the sum of its values in the order given."""
    first, position = distinct(ids)
    if len(first) == len(ids):
        return ids, values
    sums = np.zeros((len(first), values.shape[1]), np.float32)
    _sum_rows(position, values, sums)
    return first, sums


def split_by_server(ids: Ids, *, num_servers: int) -> tuple[Order, Order]:
    """An order of the positions of `ids` that puts those of one server together, and where each server's begin."""
    starts = np.zeros(num_servers + 1, np.int64)
    order = np.empty(len(ids), np.int64)
    _split(ids, starts, order)
    return order, starts


def owners(ids: Ids, *, num_servers: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The server of every id."""
    order, starts = split_by_server(ids, num_servers=num_servers)
    owner = np.empty(len(ids), np.int64)
    owner[order] = np.repeat(np.arange(num_servers), np.diff(starts))
    return owner


@compiled
def _distinct(ids: Ids, first: Ids, position: Order, slots: Order) -> int:
    size = len(slots)
    count = 0
    for i in range(len(ids)):
        slot = slot_of(ids[i], size)
        while slots[slot] >= 0 and first[slots[slot]] != ids[i]:
            slot += 1
            if slot == size:
                slot = 0
        if slots[slot] < 0:
            slots[slot] = count
            first[count] = ids[i]
            count += 1
        position[i] = slots[slot]
    return count


@compiled
def _sum_rows(position: Order, values: Floats, sums: Floats) -> None:
    for i in range(len(position)):
        row = position[i]
        for j in range(values.shape[1]):
            sums[row, j] += values[i, j]


@compiled
def server_of(value: int, num_servers: int) -> Any:
    """The server of an id: the lower bits of `mix`, so that the ids of one server still spread over its index."""
    low = mix(value) & np.uint64(0xFFFFFFFF)
    return np.int64((low * np.uint64(num_servers)) >> np.uint64(32))


@compiled
def _split(ids: Ids, starts: Order, order: Order) -> None:
    num_servers = len(starts) - 1
    for i in range(len(ids)):
        starts[server_of(ids[i], num_servers) + 1] += 1
    for server in range(num_servers):
        starts[server + 1] += starts[server]
    place = starts.copy()
    for i in range(len(ids)):
        server = server_of(ids[i], num_servers)
        order[place[server]] = i
        place[server] += 1
