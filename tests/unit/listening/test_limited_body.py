"""Bodies end within their limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from trek.listening.limited_body import BodyLimit, LimitedBody, announced_bytes


async def _read(parts: list[bytes], limit: BodyLimit) -> bytes:
    """What arrives of a body, whose last part never comes if it is empty."""
    left = [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts if part]

    async def receive() -> Any:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    limited, found, is_more = LimitedBody(receive, limit), b"", True
    while is_more:
        message = await limited()
        found, is_more = found + message["body"], message["more_body"]
    return found


def test_a_body_within_its_limits_arrives() -> None:
    assert asyncio.run(_read([b"ab", b"cd"], BodyLimit(4))) == b"abcd"


@pytest.mark.parametrize(
    ("parts", "limit", "status"),
    [([b"ab", b"cde"], BodyLimit(4), 413), ([b"ab", b""], BodyLimit(4, timeout_s=0.01), 408)],
    ids=["large", "slow"],
)
def test_a_body_beyond_its_limits_is_refused(parts: list[bytes], limit: BodyLimit, status: int) -> None:
    with pytest.raises(HTTPException) as refused:
        asyncio.run(_read(parts, limit))
    assert refused.value.status_code == status


@pytest.mark.parametrize(("value", "found"), [(b"12", 12), (b"-1", 0), ("²".encode("latin-1"), 0)])
def test_the_announced_length_is_a_number_or_none(value: bytes, found: int) -> None:
    assert announced_bytes({"type": "http", "headers": [(b"content-length", value)]}) == found
    assert announced_bytes({"type": "http", "headers": []}) == 0
