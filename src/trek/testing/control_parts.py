"""Parts of a control plane that tests make by the hundred, cheaply: a database with its tables, and password hashes.

Neither is another implementation: the tables are those that the migrations made, once per process, and the hashes are
Argon2's with the least work it allows.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from argon2 import PasswordHasher

from trek.control.store import Store
from trek.system.home import claim_home

QUICK_HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
_DATABASE = "control.db"


def open_store(folder: Path) -> Store:
    """`Store.at(folder)`, whose tables are copied instead of made by every migration again."""
    path = claim_home(folder) / _DATABASE
    if not path.exists():
        path.write_bytes(_empty_database())
    return Store.at(folder)


@cache
def _empty_database() -> bytes:
    folder = Path(tempfile.mkdtemp())
    try:
        Store.at(folder).close()  # the last connection brings everything into the one file
        return (folder / _DATABASE).read_bytes()
    finally:
        shutil.rmtree(folder)
