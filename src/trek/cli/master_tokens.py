"""MasterTokens: whether a token belongs to a user of the master, for servers that accept these tokens."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Self

from trek.cli.connect import connect
from trek.cli.terminal import echo
from trek.client.client import Address, Client
from trek.errors import NotAllowed, TrekError

_KNOWN_S = 30.0
_MOST = 1000
"""Tokens that are remembered: anyone may send any."""


class MasterTokens:
    """Asks the master, once in half a minute for each token."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._seen: dict[str, tuple[float, bool]] = {}

    @classmethod
    def of(cls, obj: dict[str, Any]) -> Self:
        """For the master of the command with the context object `obj`."""
        with connect(obj) as client:
            return cls(client.url)

    async def __call__(self, token: str) -> bool:
        """Whether the master knows the token; False, with a warning, if it cannot be asked."""
        known = self._seen.get(token)
        if known is None or time.monotonic() - known[0] > _KNOWN_S:
            if len(self._seen) >= _MOST:
                self._seen.clear()
            self._seen[token] = known = (time.monotonic(), await asyncio.to_thread(self._ask, token))
        return known[1]

    def _ask(self, token: str) -> bool:
        try:
            with Client(Address(self._url, token)) as client:
                client.whoami()
        except NotAllowed:
            return False
        except TrekError as error:
            echo(f"trek: warning: a token cannot be checked: {error}", err=True)
            return False
        return True
