"""Values that the leader gives to all ranks: of any size, and without copies that memory would have to hold."""

from __future__ import annotations

import resource
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

import trek
from trek.strategies.collectives import pieces

MIB = 1 << 20


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 40))
def test_pieces_are_all_bytes_in_order_in_groups_of_equal_size(sizes: list[int], most_bytes: int) -> None:
    flat = torch.arange(sum(sizes), dtype=torch.int64)
    groups = list(pieces(torch.split(flat, sizes), most_bytes=most_bytes))
    assert [int(number) for group in groups for part in group for number in part] == flat.tolist()
    lengths = [sum(map(len, group)) for group in groups]
    assert all(length == most_bytes for length in lengths[:-1])
    assert all(0 < length <= most_bytes for length in lengths)


def give(tr: trek.Traveler, large_mib: int) -> list[list[Any]]:
    """Of each rank: whether it has the leader's value, and by how many MiB its peak of memory grew meanwhile."""
    small = {
        "numbers": [torch.full((3,), float(number)) for number in range(200)],
        "empty": torch.empty(0, 4),
        "complex": torch.tensor([1 + 2j]),
        "flags": torch.tensor([True, False]),
        "words": ("a", {"b": None}),
    }
    large = torch.full((large_mib * MIB // 8,), 7) if tr.world.is_leader else None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    got = tr.strategy.broadcast({**small, "large": large} if tr.world.is_leader else None)
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    is_equal = (
        bool((got["large"] == 7).all())
        and len(got["large"]) == large_mib * MIB // 8
        and all(map(torch.equal, got["numbers"], small["numbers"]))
        and got["empty"].shape == (0, 4)
        and torch.equal(got["complex"], small["complex"])
        and torch.equal(got["flags"], small["flags"])
        and got["words"] == small["words"]
    )
    return tr.strategy.gather([is_equal, grown_mib])


def test_a_large_value_reaches_every_rank_without_further_copies() -> None:
    ranks = trek.run(give, 256, workers=2, strategy="ddp", show_progress=False)
    assert [is_equal for is_equal, _ in ranks] == [True, True]
    (_, leader_mib), (_, other_mib) = ranks
    assert leader_mib < 96, "the leader sends the value from where it lies"
    assert other_mib < 256 + 96, "other ranks receive it into its place"
