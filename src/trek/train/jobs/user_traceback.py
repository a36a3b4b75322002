"""A traceback as the user should see it: their own frames and what those called, nothing of Trek's around them."""

from __future__ import annotations

import importlib
import runpy
import traceback
from pathlib import Path

import trek

_OURS = str(Path(trek.__file__).parent)
_MACHINERY = (runpy.__file__, importlib.__file__, "<frozen ")


def format_user_traceback(error: BaseException) -> str:
    """The traceback of `error` and of its causes without Trek's frames; whole where nothing else would remain."""
    shown = traceback.TracebackException.from_exception(error)
    _filter(shown, seen=set())
    return "".join(shown.format())


def _filter(shown: traceback.TracebackException, *, seen: set[int]) -> None:
    if id(shown) in seen:
        return
    seen.add(id(shown))
    kept = [frame for frame in shown.stack if not _is_ours(frame.filename)]
    if kept:
        shown.stack = traceback.StackSummary.from_list(kept)
    for other in (shown.__cause__, shown.__context__):
        if other is not None:
            _filter(other, seen=seen)


def _is_ours(filename: str) -> bool:
    return filename.startswith((_OURS, *(str(name) for name in _MACHINERY)))
