"""Who may ask a server: the holder of its key, or of a token that somebody else knows."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable


async def is_admitted(
    authorization: bytes, *, key: str | None, is_allowed: Callable[[str], Awaitable[bool]] | None
) -> bool:
    """Whether a request with this `Authorization` may enter; all may where neither a key nor tokens are asked for."""
    if key is None and is_allowed is None:
        return True
    token = authorization[7:] if authorization[:7].lower() == b"bearer " else b""
    if key is not None and hmac.compare_digest(token, key.encode()):
        return True
    return bool(token) and is_allowed is not None and await is_allowed(token.decode("latin-1"))
