"""What seeds of campaigns choose, and the addresses of the nodes that they start."""

from __future__ import annotations

from trek.testing.node_kills import NodeKill
from trek.testing.ray_cluster import node_address


def test_a_seed_always_chooses_the_same() -> None:
    drawn = [NodeKill.drawn(seed, num_nodes=2, max_progress=39, max_delay_s=1.5) for seed in (7, 7, 8)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_seeds_choose_every_node_every_moment_and_every_way_to_die() -> None:
    drawn = [NodeKill.drawn(seed, num_nodes=2, max_progress=5) for seed in range(100)]
    assert {kill.victim for kill in drawn} == {0, 1}
    assert {kill.progress for kill in drawn} == {1, 2, 3, 4, 5}
    assert {(kill.takes_workers, kill.is_replaced) for kill in drawn} == {(a, b) for a in (0, 1) for b in (0, 1)}


def test_every_node_of_a_long_campaign_has_a_valid_address_of_its_own() -> None:
    addresses = [node_address(number) for number in range(1, 1000)]
    assert addresses[0] == "127.0.0.2"
    assert addresses[254:256] == ["127.0.1.0", "127.0.1.1"]
    assert len(set(addresses)) == len(addresses)
