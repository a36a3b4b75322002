"""TSets on several workers: what they hold is what one worker has, in the same order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from trek.compat.twister2.Twister2Environment import Twister2Environment

OPERATIONS = """
import numpy as np

def results(env):
    numbers = env.parallelize(range(7), 4)
    pairs = env.parallelize([("a", 1), ("b", 2), ("a", 3), ("c", 4)], 3)
    other = env.parallelize([("a", "x"), ("z", "y")], 2)
    arrays = env.parallelize([np.zeros((2, 3)), np.ones(4, np.uint8)], 2)

    def place(itr, ctx):
        return [[ctx.index, ctx.parallelism, list(itr)]]

    def shifted(itr, ctx):
        return [x + ctx.get_input("shift")[0] for x in itr]

    made = {
        "numbers": numbers,
        "map": numbers.map(lambda x: (x, {"square": x * x})),
        "filter": numbers.filter(lambda x: x % 2).flat_map(lambda x: [x, -x]),
        "compute": numbers.compute(place),
        "side input": numbers.compute(shifted).add_input("shift", env.parallelize([100])),
        "partition": numbers.partition(5).compute(place),
        "one partition": numbers.partition(1).compute(place),
        "replicate": numbers.replicate(3),
        "replicate once": numbers.replicate(1),
        "gather": numbers.gather(),
        "all_gather": numbers.all_gather(),
        "reduce": numbers.map(str).reduce(lambda a, b: a + b),
        "all_reduce": numbers.map(str).all_reduce(lambda a, b: a + b),
        "nothing": env.parallelize([], 2).reduce(max),
        "keyed_gather": pairs.keyed_gather(),
        "keyed_reduce": pairs.keyed_reduce(lambda a, b: a * 10 + b),
        "keyed_partition": pairs.keyed_partition(),
        "join": pairs.join(other),
        "outer join": pairs.join(other, how="outer"),
        "arrays": arrays.map(lambda array: [array.dtype.name, array.shape, float(array.sum())]),
        "cache": numbers.map(lambda x: -x).cache(),
    }
    return {name: tset.get_data() for name, tset in made.items()}
"""
SCRIPT = """
import json, sys
from pathlib import Path

from operations import results
from trek.compat.twister2.Twister2Environment import Twister2Environment

env = Twister2Environment(resources=[{"instances": 2}])
Path(f"worker-{env.worker_id}.json").write_text(json.dumps(results(env)))
env.finalize()
"""


def test_operations_on_two_workers_give_what_one_gives(tmp_path: Path) -> None:
    (tmp_path / "operations.py").write_text(OPERATIONS)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    scope: dict[str, Any] = {}
    exec(OPERATIONS, scope)
    alone = json.loads(json.dumps(scope["results"](Twister2Environment())))
    assert alone["reduce"] == ["0123456"]
    assert alone["all_reduce"] == ["0123456"] * 4
    for worker in range(2):
        found = json.loads((tmp_path / f"worker-{worker}.json").read_text())
        assert found == alone
