"""URLs are told from paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from trek.system.urls import is_remote, local_path, scheme_of


@pytest.mark.parametrize(
    ("address", "scheme"),
    [
        ("s3://bucket/a", "s3"),
        ("S3://bucket/a", "s3"),
        ("simplecache::s3://bucket/a", "simplecache"),
        ("memory://a", "memory"),
        ("file:///a", "file"),
        ("/a/b", "file"),
        ("a", "file"),
        ("a:b", "file"),
        ("", "file"),
    ],
)
def test_the_scheme_of_an_address(address: str, scheme: str) -> None:
    assert scheme_of(address) == scheme
    assert is_remote(address) == (scheme != "file")


@pytest.mark.parametrize("address", ["file:///a/b", "/a/b", Path("/a/b")])
def test_a_local_path_is_the_same_in_either_spelling(address: Path | str) -> None:
    assert local_path(address) == Path("/a/b")
