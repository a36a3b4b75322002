"""One HTTP download into a `.part` file that a later attempt continues where this one stopped.

Knows nothing of checksums, caches and mirrors; see `trek.data.fetching.fetch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx

from trek.errors import DataUnavailable

_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.2


def download(
    url: str,
    part: Path,
    *,
    size_bytes: int | None = None,
    on_bytes: Callable[[int], object] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Download `url` into `part`, continuing after the bytes already there; several attempts.

    `size_bytes` is what a complete file has, where it is known: a server that stops early is detected.
    `on_bytes` is called with the number of bytes received; a negative number if the download had to start over.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _attempt(url, part, size_bytes=size_bytes, on_bytes=on_bytes)
        except (httpx.TransportError, _TryAgain) as error:
            reason = str(error) or type(error).__name__
            if attempt < _ATTEMPTS - 1:
                sleep(_FIRST_PAUSE_S * 2**attempt)
    raise DataUnavailable(f"{url}: {reason} ({_ATTEMPTS} attempts)")


class _TryAgain(Exception):
    """The server answered, and another attempt may succeed."""


def _attempt(url: str, part: Path, *, size_bytes: int | None, on_bytes: Callable[[int], object]) -> None:
    start = part.stat().st_size if part.exists() else 0
    if size_bytes is not None and start >= size_bytes:
        return
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with httpx.stream("GET", url, headers=headers, timeout=_TIMEOUT, follow_redirects=True) as response:
        continues = _continues(url, response, part, start=start)
        if not continues:
            on_bytes(-start)
        with part.open("ab" if continues else "wb") as file:
            for chunk in response.iter_raw():
                file.write(chunk)
                on_bytes(len(chunk))
    got = part.stat().st_size
    if size_bytes is not None and got < size_bytes:
        raise _TryAgain(f"stopped after {got:,} of {size_bytes:,} bytes")


def _continues(url: str, response: httpx.Response, part: Path, *, start: int) -> bool:
    """Whether the response continues at `start`; raises for an error response."""
    if response.status_code == 206:
        return str(response.headers.get("Content-Range")).startswith(f"bytes {start}-")
    if response.status_code == 416:
        part.unlink()
        raise _TryAgain("the server has fewer bytes than were downloaded earlier")
    if response.status_code >= 500 or response.status_code == 429:
        raise _TryAgain(f"the server answered {response.status_code}")
    if response.status_code != 200:
        raise DataUnavailable(f"{url}: the server answered {response.status_code}")
    return False
