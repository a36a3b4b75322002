"""Requests to web servers: what is transient is tried again, and what stays is one error with the URL and the answer.

Knows fsspec's file system for `http` and `https`, which takes every answer but a good one for a missing file.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from fsspec.exceptions import FSTimeoutError

from trek.errors import DataUnavailable

_Result = TypeVar("_Result")
_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.2
_NOT_FOUND = (404, 410)
_TRANSIENT = (408, 429)


def is_web(url: str) -> bool:
    """Whether a web server has what `url` names."""
    return url.startswith(("http://", "https://"))


def retried(act: Callable[[], _Result], *, url: str, sleep: Callable[[float], None] = time.sleep) -> _Result:
    """What `act` gives, tried again where a web server or the way to it failed; other errors pass as they are."""
    for attempt in range(_ATTEMPTS):
        try:
            return act()
        except Exception as error:
            failure = _failure(error)
            if failure is None:
                raise
            status = getattr(failure, "status", None)
            reason = f"the server answered {status}" if status else f"{type(failure).__name__}: {failure}".rstrip(".: ")
            if status is not None and status < 500 and status not in _TRANSIENT:
                raise DataUnavailable(f"{url}: {reason}. Check the URL and what the server asks for.") from error
            if attempt == _ATTEMPTS - 1:
                raise DataUnavailable(
                    f"{url}: {reason} ({_ATTEMPTS} attempts). Try again later, or download the file first."
                ) from error
        sleep(_FIRST_PAUSE_S * 2**attempt)
    raise AssertionError("every attempt returns or raises")


class RetriedFile(io.RawIOBase):
    """A file of a web server, from which what could not be read is read again."""

    def __init__(self, content: BinaryIO, *, url: str) -> None:
        self._content = content
        self._url = url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._content.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._content.seek(offset, whence)

    def tell(self) -> int:
        return self._content.tell()

    def readinto(self, buffer: Any) -> int:
        found = retried(lambda: self._content.read(len(buffer)), url=self._url)
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._content.close()
        super().close()


def _failure(error: Exception) -> BaseException | None:
    """What a server or the connection to it did; None of an error of another kind, and of a file that is not there."""
    cause = error.__cause__ if isinstance(error, FileNotFoundError) else error
    is_ours = type(cause).__module__.partition(".")[0] == "aiohttp" or isinstance(cause, FSTimeoutError)
    return cause if is_ours and getattr(cause, "status", None) not in _NOT_FOUND else None
