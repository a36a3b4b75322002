"""Memory that worker processes keep between batches."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from trek.data.execution.worker_memory import keep_freed_memory

def num_faults(num_bytes):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    first, second = np.ones(num_bytes, np.uint8), np.ones(num_bytes, np.uint8)
    del first, second
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {keeps}:
    keep_freed_memory()
num_faults(6 << 20)
print(num_faults(6 << 20) + num_faults(3 << 20) + num_faults(6 << 20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have settings of their own")
def test_freed_memory_is_used_for_the_next_batch() -> None:
    faults = {keeps: int(_output(PROGRAM.format(keeps=keeps))) for keeps in (False, True)}
    assert faults[True] < 50 < faults[False], "pages that were touched for the first time"


def _output(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
