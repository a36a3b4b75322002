"""Small steps for tests of flows, and how such a flow is run: quietly, with two steps at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trek.flow import Flow, Run


def num_lines(path: Path) -> int:
    """How many lines a file has; none if it does not exist."""
    return len(path.read_text().splitlines()) if path.exists() else 0


def one(log: str) -> int:
    """A step that leaves a line each time it runs."""
    with Path(log).open("a") as file:
        file.write("one\n")
    return 1


def add(a: int, b: int = 0) -> int:
    """A step with a parameter."""
    return a + b


def run_flow(flow: Flow, **settings: Any) -> Run:
    """Run it."""
    return flow.run(show=False, parallel=2, **settings)
