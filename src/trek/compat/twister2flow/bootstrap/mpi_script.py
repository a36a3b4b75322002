"""Runs a script that reads its rank from Open MPI's variables, in a process that another launcher started."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import trek


def main() -> None:
    """Run the script that the first argument names, with the others."""
    world = trek.World.from_env()
    os.environ.setdefault("OMPI_COMM_WORLD_RANK", str(world.rank))
    os.environ.setdefault("OMPI_COMM_WORLD_SIZE", str(world.size))
    script = sys.argv[1]
    sys.argv[:] = sys.argv[1:]
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
