"""How Trek's own processes end, seen from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

_BEGIN = "import atexit, sys, threading, time\nfrom trek.system.leaving import run_and_leave\n"


def _run(code: str, *, stdout: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _BEGIN + code]
    env = {**os.environ, "PYTHONUNBUFFERED": ""}  # output is written at the end, as where nobody asked for more
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=env, text=True, check=False)


def test_it_ends_with_its_code_after_its_output_and_exit_functions() -> None:
    done = _run(
        "atexit.register(print, 'at exit')\ndef main(): print('said', end=' '); sys.exit(3)\nrun_and_leave(main)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "said at exit\n", "")


@pytest.mark.parametrize("ending", ["pass", "sys.exit()", "sys.exit(0)"])
def test_one_that_succeeds_ends_with_0(ending: str) -> None:
    assert _run(f"def main(): {ending}\nrun_and_leave(main)").returncode == 0


def test_the_interpreter_is_not_taken_apart() -> None:
    code = "class Kept:\n    def __del__(self): print('gone', flush=True)\nkept = Kept()\n"
    assert _run(f"{code}run_and_leave(lambda: None)").stdout == ""


def test_a_thread_that_works_is_waited_for() -> None:
    code = "def work(): time.sleep(0.3); print('worked')\ndef main(): threading.Thread(target=work).start()\n"
    assert _run(f"{code}run_and_leave(main)").stdout == "worked\n"


def test_an_exception_is_shown_as_always() -> None:
    done = _run("def main(): 1 / 0\nrun_and_leave(main)")
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_text_instead_of_a_code_is_shown() -> None:
    done = _run("run_and_leave(lambda: sys.exit('it did not work'))")
    assert (done.returncode, done.stderr) == (1, "it did not work\n")


def test_output_that_cannot_be_written_is_a_failure() -> None:
    with open("/dev/full", "w") as full:
        done = _run("run_and_leave(lambda: print('lost'))", stdout=full)
    assert done.returncode == 120
    assert "No space left on device" in done.stderr
