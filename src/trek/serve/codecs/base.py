"""Codec: one format of requests and answers. Raises InputError for a body that is not in its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic_core import from_json

from trek.errors import InputError


@dataclass
class Request:
    """A decoded request."""

    inputs: dict[str, Any]
    """By name, rows first: arrays or nested lists."""
    options: dict[str, Any] = field(default_factory=dict)
    """What the codec needs to encode the answer."""


def check_names(names: Sequence[str]) -> None:
    """Raise `InputError` if a request has two inputs of one name: only one of them would be used."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"the body has more than one input {twice!r}. Send each input once.")


@dataclass
class Answer:
    """An encoded answer."""

    body: bytes
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


class TooLarge(InputError):
    """A body that is small itself stands for more than may be sent."""


class Codec(ABC):
    """One format. A request may take no more than a fixed multiple of `max_bytes` of memory, packed as it may be."""

    def __init__(self, *, max_bytes: int) -> None:
        self.max_bytes = max_bytes

    def require_size(self, num_bytes: int) -> None:
        """TooLarge if a body unpacks to so much."""
        if num_bytes > self.max_bytes:
            raise TooLarge(
                f"the body unpacks to {num_bytes / 2**20:,.1f} MiB, and at most {self.max_bytes / 2**20:g} MiB are "
                "taken. Send fewer rows at a time."
            )

    @abstractmethod
    def decode(self, body: memoryview, *, headers: Mapping[str, str]) -> Request:
        """The request in `body`, whose memory may be written to."""

    @abstractmethod
    def encode(self, outputs: Mapping[str, np.ndarray], *, request: Request, model: str, version: str) -> Answer:
        """The answer to `request`."""


def read_json(body: memoryview) -> Any:
    """The JSON in `body`. By pydantic's parser, which takes a fifth of the time that the standard library takes."""
    try:
        return from_json(bytes(body))
    except ValueError as error:
        raise InputError(f"the body is not valid JSON: {error}.") from None


def to_lists(array: np.ndarray) -> Any:
    """Nested lists that JSON can hold: NaN and infinities, which it lacks, become null."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        boxed = array.astype(object)
        boxed[~np.isfinite(array)] = None
        return boxed.tolist()
    return array.tolist()
