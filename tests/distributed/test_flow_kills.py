"""Killing the runner of a flow at random moments: resumed, it gives what an undisturbed run gives."""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

FLOW = """
import json, os, sys, time
import numpy as np
import trek
from trek.flow import OUTPUT_DIR, scratch

def numbers(seed):
    time.sleep(0.05)
    return np.random.default_rng(seed).integers(0, 100, 2000)

def into_file(array):
    path = scratch() / "numbers.txt"
    with path.open("w") as file:
        for number in array:
            file.write(f"{number}\\n")
    return path

def split(path):
    lines = path.read_text().split()
    return [int(line) for line in lines[::2]], {"odd": np.array(lines[1::2], dtype=np.int64)}

def mean(even, odd):
    return {"even": sum(even) / len(even), "odd": float(odd["odd"].mean()), "pair": (1, 2)}

def square(number):
    return number * number

def both(world_input):
    return world_input["even"]

flow = trek.Flow("killed")
seeds = flow.map(numbers, range(3))
path = flow.step(into_file, seeds[0])
even, odd = flow.step(split, path, outputs=2)
means = flow.step(mean, even, odd)
sums = flow.step(lambda *arrays: [int(array.sum()) for array in arrays], *seeds[1:], handover="memory", name="sums")
copy = flow.command("copy", ["cp", path.path, OUTPUT_DIR], outputs=["numbers.txt"])
last = flow.step(both, means, workers=2)
squares = flow.map(square, flow.step(lambda means: [int(means["even"]), 2, 3], means, name="items"))
if __name__ == "__main__":
    run = flow.run(parallel=2, resume=sys.argv[1] if len(sys.argv) > 1 else None, show=False)
    print(json.dumps([run[means], run[sums], run[last], run[squares], run[copy].read_text()]))
"""


def _command(folder: Path, *args: str) -> list[str]:
    return [sys.executable, str(folder / "killed.py"), *args]


def _newest_run(folder: Path) -> Any:
    from trek.flow.flow_store import FlowStore

    store = FlowStore("killed", home=folder)
    runs = store.runs()
    store.close()
    return runs[-1] if runs else None


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TREK_MARK") == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _await_silence(mark: str) -> None:
    deadline = time.monotonic() + 240
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, "processes outlived the runner"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """What the flow gives when nobody disturbs it, and how long that takes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "killed.py").write_text(FLOW)
    began = time.monotonic()
    done = subprocess.run(
        _command(folder), env={**os.environ, "TREK_HOME": str(folder)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, time.monotonic() - began


def _kill_until_done(folder: Path, dice: random.Random, duration_s: float) -> str:
    (folder / "killed.py").write_text(FLOW)
    for kills_left in (2, 1, 0):
        mark = secrets.token_hex(8)
        env = {**os.environ, "TREK_HOME": str(folder), "TREK_MARK": mark}
        newest = _newest_run(folder)
        with subprocess.Popen(
            _command(folder, *([newest.id] if newest else [])),
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            try:
                patience_s = dice.uniform(0.0, duration_s) if kills_left else 60
                out, err = process.communicate(timeout=patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                _await_silence(mark)
                continue
        assert process.returncode == 0, err
        _await_silence(mark)
        return out
    raise AssertionError("the last attempt was not to be killed")


def _check(seed: int, folder: Path, undisturbed: tuple[str, float]) -> None:
    expected, duration_s = undisturbed
    assert json.loads(_kill_until_done(folder, random.Random(seed), duration_s)) == json.loads(expected)
    run = _newest_run(folder)
    assert run.state == "done"
    assert not list(Path("/dev/shm").glob(f"trek-flow-{run.id}*"))
    assert not (folder / "flows" / "killed" / "runs" / run.id / "attempts").exists()


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_run_resumes_to_the_same_outputs(seed: int, tmp_path: Path, undisturbed: tuple[str, float]) -> None:
    _check(seed, tmp_path, undisturbed)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(100, 200))
def test_a_hundred_killed_runs_resume_to_the_same_outputs(
    seed: int, tmp_path: Path, undisturbed: tuple[str, float]
) -> None:
    _check(seed, tmp_path, undisturbed)
