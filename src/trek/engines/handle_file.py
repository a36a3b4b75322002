"""The handle of a gang in a file, with its Engine's name: how a program that was restarted finds its gangs again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trek.engines.base import Engine, Exit, Gang, GangSpec, open_engine
from trek.engines.state_files import read_state, write_state
from trek.errors import InputError


def write_handle(path: Path, spec: GangSpec, *, engine: Engine) -> None:
    """Store the handle of the gang of `spec`; call it before the gang is started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_state(path, {"engine": engine.name, "handle": engine.handle_of(spec)})


def attach_by_file(
    path: Path,
    *,
    spec: GangSpec | None = None,
    on_exit: Callable[[Exit], None] | None = None,
    engine: Engine | None = None,
) -> Gang:
    """The gang whose handle was written to `path`; InputError if there is none, as `Engine.attach` raises it.

    If the gang is of the kind of `engine`, that one is used, with its options; otherwise one without any is opened.
    """
    try:
        known = read_state(path, "engine", "handle")
    except FileNotFoundError:
        raise InputError(f"no gang was started with its handle in {str(path)!r}. Start one first.") from None
    used = engine if engine is not None and engine.name == known["engine"] else open_engine(known["engine"])
    return used.attach(known["handle"], spec=spec, on_exit=on_exit)
