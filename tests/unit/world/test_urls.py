"""URLs of other file systems, and paths of this machine."""

from __future__ import annotations

import pytest

from trek.world.urls import is_remote, local_path


@pytest.mark.parametrize(
    ("address", "expected"),
    [("s3://bucket/x", True), ("local:///x", True), ("file:///x", False), ("/x", False), ("x", False)],
)
def test_only_urls_of_other_file_systems_are_remote(address: str, expected: bool) -> None:
    assert is_remote(address) is expected


@pytest.mark.parametrize("address", ["file:///x/y", "/x/y"])
def test_a_local_address_names_a_path(address: str) -> None:
    assert local_path(address) == "/x/y"
