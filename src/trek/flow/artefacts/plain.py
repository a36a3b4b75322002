"""Plain data: None, numbers, text, lists, tuples and dicts of them, as JSON that keeps tuples and keys as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trek.flow.artefacts.base import ArtefactKind

INLINE_BYTES = 64 * 1024
"""Up to here a value is kept in the records, without a file."""

_TUPLE, _DICT = "__tuple__", "__dict__"


class PlainKind(ArtefactKind):
    """JSON, in the records when it is small."""

    def accepts(self, value: Any) -> bool:
        """Whether `value` holds nothing but plain data."""
        if type(value) in (type(None), bool, int, float, str):
            return True
        if type(value) in (list, tuple):
            return all(map(self.accepts, value))
        return type(value) is dict and all(map(self.accepts, value.keys())) and all(map(self.accepts, value.values()))

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Inline, or as `value.json`."""
        text = json.dumps(_encode(value))
        if len(text) <= INLINE_BYTES:
            return {"json": text}
        folder.mkdir(parents=True)
        self.path(folder, {}).write_text(text)
        return {}

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """The same value, tuples as tuples."""
        return _decode(json.loads(facts["json"] if "json" in facts else self.path(folder, facts).read_text()))

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """The JSON file; a command that is given an inline value gets it written there first."""
        return folder / "value.json"


def _encode(value: Any) -> Any:
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, tuple):
        return {_TUPLE: [_encode(item) for item in value]}
    if isinstance(value, dict):
        if all(isinstance(key, str) and key not in (_TUPLE, _DICT) for key in value):
            return {key: _encode(item) for key, item in value.items()}
        return {_DICT: [[_encode(key), _encode(item)] for key, item in value.items()]}
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if isinstance(value, dict):
        if _TUPLE in value:
            return tuple(_decode(item) for item in value[_TUPLE])
        if _DICT in value:
            return {_decode(key): _decode(item) for key, item in value[_DICT]}
        return {key: _decode(item) for key, item in value.items()}
    return value
