"""Entrypoints, `module:Class` or a command: checked before an experiment is created, loaded where it runs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from trek.errors import EntrypointError, InvalidHP, TrainingError, TrekError
from trek.train.jobs.user_traceback import format_user_traceback


def check_entrypoint(entrypoint: str | list[str], folder: Path) -> None:
    """EntrypointError if the file or the name does not exist. Runs none of the user's code."""
    if isinstance(entrypoint, list):
        _check_command(entrypoint, folder)
        return
    module, _, name = entrypoint.partition(":")
    path = _module_path(module, folder)
    if path is None:
        if _is_installed(module):
            return
        raise EntrypointError(
            f"entrypoint {entrypoint!r}: module {module!r} not found in {str(folder)!r}. "
            f"It has: {', '.join(_modules(folder)) or 'no Python files'}."
        )
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # the trial will show the error with its line
    names = _bound_names(tree)
    if name not in names and "*" not in names:
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        raise EntrypointError(
            f"entrypoint {entrypoint!r}: {path.name} has no {name!r}. It has: {', '.join(classes) or 'no classes'}."
        )


def load_entrypoint(entrypoint: str, folder: Path) -> type[Any]:
    """Import the Trial class with `folder` on sys.path. An error in the user's module is a TrainingError."""
    module_name, _, name = entrypoint.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    module = _import(entrypoint, module_name)
    if not hasattr(module, name):
        raise EntrypointError(f"entrypoint {entrypoint!r}: module {module_name!r} has no {name!r}.")
    found: type[Any] = getattr(module, name)
    from trek.train.trainer import check_trial_class  # loads torch, which checking an entrypoint does not need

    check_trial_class(found)
    return found


def _check_command(words: list[str], folder: Path) -> None:
    program = words[0]
    shown = shlex.join(words)
    if program not in ("python", "python3") and not (folder / program).is_file() and shutil.which(program) is None:
        raise EntrypointError(
            f"entrypoint {shown!r}: program {program!r} not found, neither in {str(folder)!r} nor on PATH."
        )
    script = words[1] if len(words) > 1 and program in ("python", "python3") else ""
    if script.endswith(".py") and not (folder / script).is_file():
        raise EntrypointError(
            f"entrypoint {shown!r}: script {script!r} not found in {str(folder)!r}. "
            f"It has: {', '.join(f'{name}.py' for name in _modules(folder)) or 'no Python files'}."
        )


def _import(entrypoint: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise EntrypointError(f"entrypoint {entrypoint!r}: module {error.name!r} not found.") from None
        raise _users_error(module_name, error) from error
    except (TrekError, InvalidHP):
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _users_error(module_name, error) from error


def _users_error(module_name: str, error: BaseException) -> TrainingError:
    return TrainingError(
        f"importing {module_name!r} failed: {type(error).__name__}: {error}",
        traceback_text=format_user_traceback(error),
    )


def _module_path(module: str, folder: Path) -> Path | None:
    base = folder.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _modules(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.py"))[:10]


def _bound_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
