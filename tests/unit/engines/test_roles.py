"""What a member learns of the roles of its gang."""

from __future__ import annotations

from trek.engines.hosts import AssignedRank, Host, spread
from trek.engines.roles import WORLD_NAMES, role_environment
from trek.world import World


def test_a_worker_learns_where_the_servers_are() -> None:
    worker = AssignedRank(1, "a", 1, 2, 2)
    env = role_environment(worker, addresses={"server": ["a:1", "b:2"]})
    assert env == {"TREK_ROLE": "worker", "TREK_SERVER_ADDRESSES": "a:1,b:2"}


def test_a_server_learns_its_own_place_and_is_no_rank() -> None:
    server = AssignedRank(1, "a", 0, 1, 2, "server")
    env = role_environment(server, addresses={"server": ["a:1", "b:2"]})
    assert (env["TREK_ROLE"], env["TREK_ROLE_RANK"], env["TREK_ROLE_SIZE"]) == ("server", "1", "2")
    assert not WORLD_NAMES & env.keys()
    assert World.from_env(env) == World()


def test_other_roles_are_spread_over_the_hosts_and_take_no_slots() -> None:
    assigned = spread([Host("a", 1), Host("b", 1)], 3, role="server")
    assert [(one.host, one.local_rank, one.local_size) for one in assigned] == [("a", 0, 2), ("b", 0, 1), ("a", 1, 2)]
    assert spread([Host("a", 1), Host("b", 1)], 2, role="server")[:2] != []
