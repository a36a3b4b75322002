"""The flow of examples/mnist on a data set that needs no network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mnist"
CODE = """
import json
from flow import accuracy, flow

settings = {"dataset": "digits", "batch_size": 16}
runs = [flow.run(params={**settings, "handover": way}, show=False) for way in ("memory", "disk")]
print(json.dumps([run[accuracy] for run in runs]))
"""


def test_by_disk_and_in_memory_a_flow_gives_the_same_tested_model() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=EXAMPLE, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    by_memory, by_disk = json.loads(done.stdout)
    assert by_memory == by_disk
    assert by_disk > 0.5  # a guess is right one time in ten
