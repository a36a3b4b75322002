"""How many threads a member is told to use."""

from __future__ import annotations

import os
from typing import Any

import pytest

from trek.engines.agent import SHARE, THREADS, _environment
from trek.engines.ssh import without_share

CORES = len(os.sched_getaffinity(0))


def told(env: dict[str, str], **request: Any) -> tuple[str | None, str | None]:
    given = {"env": env, "inherit_env": False, "num_threads": None, "local_size": 1, **request}
    made = _environment(given, folder="/folder")
    return made.get(THREADS), made.get(SHARE)


@pytest.mark.parametrize(
    ("env", "request_", "expected"),
    [
        ({}, {}, (None, None)),
        ({}, {"local_size": CORES}, ("1", "1")),
        ({}, {"num_threads": 3}, ("3", "3")),
        ({THREADS: "5"}, {"local_size": 2}, ("5", None)),
        ({THREADS: "8", SHARE: "8"}, {"local_size": 2}, ("4", "4")),
        ({THREADS: "8", SHARE: "8"}, {}, ("8", "8")),
        ({THREADS: "1", SHARE: "1"}, {"local_size": 4}, ("1", "1")),
        ({THREADS: "8", SHARE: "4"}, {"local_size": 2}, ("8", "4")),
    ],
)
def test_a_share_is_divided_and_a_users_number_is_kept(
    env: dict[str, str], request_: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    """The share of a step used to count as the user's number, which every process of a gang got in full."""
    assert told(env, **request_) == expected


def test_a_share_of_this_machine_does_not_count_on_another() -> None:
    assert without_share({THREADS: "2", SHARE: "2", "A": "1"}) == {"A": "1"}
    assert without_share({THREADS: "2"}) == {THREADS: "2"}
