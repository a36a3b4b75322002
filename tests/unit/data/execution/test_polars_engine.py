"""Polars is loaded when it is needed, takes its share of the cores, and leaves the environment as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import polars as pl
import pytest

from trek.data.execution.polars_engine import polars_errors, set_budget
from trek.errors import InputError, OutsideError


def run_script(program: str, **environment: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("POLARS_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**env, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_tables_that_need_no_relational_work_do_not_load_polars() -> None:
    program = """
import sys, numpy as np, trek, trek.data
from trek.data import Table
table = Table.of({"x": np.arange(10)}).map(lambda batch: batch)
assert len(list(table.batches(4, shuffle=True))) == 3
print("polars" in sys.modules)
"""
    assert run_script(program) == "False"


_THREADS = """
import os
from trek.data.execution.polars_engine import load_polars
before = dict(os.environ)
threads = load_polars().thread_pool_size()
assert dict(os.environ) == before
print(threads)
"""


def test_a_rank_of_a_gang_takes_its_share_of_the_cores() -> None:
    """Every rank would have as many threads as the machine has cores."""
    cores = len(os.sched_getaffinity(0))
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    assert run_script(_THREADS) == str(cores)
    assert run_script(_THREADS, **ranks, MASTER_PORT="29501") == str(max(1, cores // 2))
    assert run_script(_THREADS, POLARS_MAX_THREADS="3") == "3"


def test_a_budget_leaves_the_environment_as_it_was() -> None:
    before = dict(os.environ)
    set_budget(1_000_000_000, None)
    assert dict(os.environ) == before


def test_errors_of_polars_are_ours() -> None:
    with (
        pytest.raises(InputError, match=r"cannot compute `x`: .*failed in column 'a'"),
        polars_errors("x"),
    ):
        pl.DataFrame({"a": ["b"]}).select(pl.col("a").cast(pl.Int8))
    with pytest.raises(OutsideError, match="Polars failed to compute x: broken"), polars_errors("x"):
        raise pl.exceptions.PanicException("broken")
