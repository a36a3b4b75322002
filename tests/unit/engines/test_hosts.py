"""Hostfiles and places."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from trek.engines.hosts import Host, assign_ranks, is_this_machine, read_hostfile
from trek.errors import InputError


def _read(folder: Path, text: str) -> list[Host]:
    path = folder / "hosts"
    path.write_text(text)
    return read_hostfile(path)


def test_the_forms_of_open_mpi_are_read(tmp_path: Path) -> None:
    text = "# machines\nnode1 slots=2\n\nnode2 slots = 4 max_slots=8  # fast\nnode3\nnode4:3\nme@node5 max-slots=2\n"
    expected = [Host("node1", 2), Host("node2", 4), Host("node3", 1), Host("node4", 3), Host("me@node5", 1)]
    assert _read(tmp_path, text) == expected


def test_a_host_named_twice_has_the_sum_of_its_slots(tmp_path: Path) -> None:
    assert _read(tmp_path, "a slots=1\nb\na slots=2\n") == [Host("a", 3), Host("b", 1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a slots=x", "'x' is not a number of slots"),
        ("a slots=0", "'0' is not a number of slots"),
        ("a cores=2", "'cores=2' is not understood"),
        ("a slots=4 max_slots=2", "more than max_slots=2"),
        ("-oProxyCommand=x", "is not a host name"),
        ("slots=2", "is not a host name"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=f"hosts:2: .*{message}"):
        _read(tmp_path, f"ok\n{line}\n")


def test_an_empty_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="names no host"):
        _read(tmp_path, "# nothing\n")
    with pytest.raises(InputError, match="cannot be read"):
        read_hostfile(tmp_path / "missing")


def test_ranks_fill_hosts_in_order() -> None:
    places = assign_ranks([Host("a", 2), Host("b", 4)], 3)
    assert [(p.rank, p.host, p.local_rank, p.local_size, p.size) for p in places] == [
        (0, "a", 0, 2, 3),
        (1, "a", 1, 2, 3),
        (2, "b", 0, 1, 3),
    ]


def test_too_few_slots_are_an_error() -> None:
    with pytest.raises(InputError, match="3 workers were asked for, and the hosts have 2 slots"):
        assign_ranks([Host("a", 2)], 3)


def test_this_machine_is_known_by_its_names() -> None:
    assert all(map(is_this_machine, ["localhost", "127.0.0.1", "127.0.0.9", "::1", socket.gethostname()]))
    assert not is_this_machine("some-other-node")
