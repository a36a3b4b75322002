"""Masks secrets in configs before they are shown. Only trials get the unmasked config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "********"
_SECRET = re.compile(r"passw|secret|token|api_?key|access_?key|private_?key|credential", re.IGNORECASE)
_HARMLESS = re.compile(
    r"^(num|max|min|vocab|pad|eos|bos|unk|mask|sep|cls)_|tokens$|tokenizer|^token_?(dim|size|len)", re.IGNORECASE
)


def masked(value: Any) -> Any:
    """A copy with the values of keys that look secret masked; numbers and flags are never secret."""
    if isinstance(value, Mapping):
        return {key: MASK if _is_secret(str(key), item) else masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return value


def _is_secret(key: str, value: Any) -> bool:
    return isinstance(value, str) and bool(value) and bool(_SECRET.search(key)) and not _HARMLESS.search(key)
