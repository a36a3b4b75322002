"""`trek migrate check|apply`: scripts of other projects, and their import lines changed to Trek's."""

from __future__ import annotations

import difflib
import io
import shutil
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trek.cli.render import json_option
from trek.cli.terminal import confirm, echo, echo_json, echo_lines
from trek.errors import InputError

if TYPE_CHECKING:
    from trek.compat.migration import Migration

_LEFT_OUT = {".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages"}


@click.group()
def migrate() -> None:
    """Find names of Determined, ElasticDL, Twister2 and pytorch-quik in scripts, and change their import lines."""


@migrate.command()
@click.argument("place", type=click.Path(path_type=Path), metavar="FILE|FOLDER")
@json_option
def check(place: Path, *, as_json: bool) -> None:
    """Show which names a script uses, which of them Trek has, and the changed import lines. Runs and writes nothing.

    Files of a folder that are not Python 3 are named, and the others checked.
    """
    unread: dict[Path, str] = {}
    found = list(_migrations(place, unread=unread if place.is_dir() else None))
    if as_json:
        failed = [{"file": str(path), "names": [], "changes": [], "error": why} for path, why in unread.items()]
        echo_json([*(_described(path, one) for path, one in found), *failed])
        return
    for path, one in found:
        _show(path, one)
    for error in unread.values():
        echo(f"Not read: {error}")
    missing = sum(not name.is_covered for _, one in found for name in one.names)
    count = sum(len(one.names) for _, one in found)
    more = f" {len(unread)} file(s) were not read." if unread else ""
    echo(f"{len(found)} file(s) use {count} name(s) of other projects; {missing} of them do not exist here.{more}")


@migrate.command()
@click.argument("place", type=click.Path(path_type=Path), metavar="FILE|FOLDER")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def apply(place: Path, *, yes: bool, as_json: bool) -> None:
    """Show the changed import lines as a diff, then write them. The file before is kept as FILE.orig.

    Names that Trek does not have are listed; their lines have to be changed by hand, and the exit code is 2.
    """
    found = list(_migrations(place))
    changed = [(path, one) for path, one in found if one.changes]
    for path, one in changed:
        echo_lines(_diff(path, one).rstrip(), err=as_json)
    _check_backups(path for path, _ in changed)
    if changed and not yes:
        confirm(f"Change {len(changed)} file(s)?", err=as_json)
    written = [{"file": str(path), "backup": str(_write(path, one))} for path, one in changed]
    if as_json:
        echo_json(written)
    elif not written:
        echo("Nothing to change.")
    for entry in () if as_json else written:
        echo(f"Changed {entry['file']}; the file before is {entry['backup']}.")
    _refuse_missing(found)


def _refuse_missing(found: Iterable[tuple[Path, Migration]]) -> None:
    """Such a file fails when it is run."""
    missing = [(path, name) for path, one in found for name in one.names if not name.is_covered]
    for path, name in missing:
        echo(f"{path}, line {name.line}: {name.name} is not here ({name.note})", err=True)
    if missing:
        raise InputError(f"{len(missing)} name(s) do not exist here. Change the lines above by hand.")


def _migrations(place: Path, *, unread: dict[Path, str] | None = None) -> Iterator[tuple[Path, Migration]]:
    """The files that use names of other projects; why one cannot be read goes to `unread`, if it is given."""
    from trek.compat.migration import migrate as inspect

    for path in _files(place):
        try:
            found = inspect(_read(path), file=str(path))
        except InputError as error:
            if unread is None:
                raise
            unread[path] = str(error)
            continue
        if found.names:
            yield path, found


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise InputError(f"{str(place)!r} not found. Name a Python file or a folder.")
    return sorted(path for path in place.rglob("*.py") if not _LEFT_OUT & set(path.relative_to(place).parts))


def _read(path: Path) -> str:
    """The text, in the encoding that the file declares; UTF-8 if it declares none."""
    raw, encoding = _raw(path)
    try:
        text = raw.decode(encoding)
        if text.encode(encoding) == raw:
            return text
    except UnicodeError:
        pass
    raise _not_decoded(path)


def _raw(path: Path) -> tuple[bytes, str]:
    try:
        raw = path.read_bytes()
        return raw, tokenize.detect_encoding(io.BytesIO(raw).readline)[0]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except SyntaxError:
        raise _not_decoded(path) from None


def _not_decoded(path: Path) -> InputError:
    return InputError(f"{path} is not UTF-8, nor of an encoding that it declares. Convert it to UTF-8.")


def _check_backups(paths: Iterable[Path]) -> None:
    """Before anything is written."""
    for backup in map(_backup, paths):
        if backup.exists():
            raise InputError(f"{backup} exists already. Move it away: it may be the only copy of the file before.")


def _backup(path: Path) -> Path:
    return path.with_name(f"{path.name}.orig")


def _write(path: Path, one: Migration) -> Path:
    encoding = _raw(path)[1]
    shutil.copy2(path, _backup(path))
    path.write_bytes(one.text.encode(encoding))
    return _backup(path)


def _diff(path: Path, one: Migration) -> str:
    before = _read(path).splitlines(keepends=True)
    return "".join(
        difflib.unified_diff(before, one.text.splitlines(keepends=True), str(path), f"{path} (changed)", n=0)
    )


def _show(path: Path, one: Migration) -> None:
    echo(f"{path}")
    for name in one.names:
        mark, where = ("✓", name.here) if name.is_covered else ("✗", "not here")
        echo(f"  {mark} line {name.line}: {name.name} → {where}{f' ({name.note})' if name.note else ''}")
    for change in one.changes:
        echo(f"    line {change.line}: {change.old} → {change.new}")


def _described(path: Path, one: Migration) -> dict[str, Any]:
    names = [
        {"name": n.name, "line": n.line, "is_covered": n.is_covered, "here": n.here, "note": n.note} for n in one.names
    ]
    changes = [{"line": edit.line, "old": edit.old, "new": edit.new} for edit in one.changes]
    return {"file": str(path), "names": names, "changes": changes, "error": None}
