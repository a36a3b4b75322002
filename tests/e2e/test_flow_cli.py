"""`trek flow` as a user runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import psutil
import pytest

FLOW = """
import os, time
import trek
from helper import double

flow = trek.Flow("example")
lr = flow.param("lr", 0.1, help="learning rate")

def download():
    print("downloading")
    return 21

def check(value, folder):
    if not os.path.exists(os.path.join(folder, "good")):
        raise ValueError("not good yet")
    return value

def wait(folder):
    open(os.path.join(folder, "waiting"), "w").close()
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.01)

raw = flow.step(download)
doubled = flow.step(double, raw)
checked = flow.step(check, doubled, FOLDER)
flow.command("show", ["python", "-c", "import sys; print('lr', sys.argv[1])", lr], after=[checked])
flow.run()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flow.py").write_text(FLOW.replace("FOLDER", repr(str(tmp_path))))
    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    return tmp_path


def _trek(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trek", "flow", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def _json(folder: Path, *args: str) -> Any:
    done = _trek(folder, *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_way_of_a_flow_from_failure_to_success(folder: Path) -> None:
    failed = _trek(folder, "run", "flow.py")
    assert failed.returncode == 1
    assert "ValueError: not good yet" in failed.stderr
    assert "trek flow resume example" in failed.stderr.splitlines()[-1]
    assert "performing.py" not in failed.stderr
    states = {step["name"]: step["state"] for step in _json(folder, "status", "example")["steps"]}
    assert states == {"download": "done", "double": "done", "check": "failed", "show": "blocked"}

    (folder / "good").touch()
    done = _json(folder, "resume", "example")
    assert {step["name"]: step["state"] for step in done["steps"]} == {
        "download": "cached",
        "double": "cached",
        "check": "done",
        "show": "done",
    }
    assert _trek(folder, "logs", "example", "show").stdout == "lr 0.1\n"
    assert _trek(folder, "logs", "example", "download").stdout == "downloading\n"

    (folder / "helper.py").write_text("def double(x):\n    # as before\n    return 2 * x\n")
    again = _json(folder, "run", "flow.py", "--param", "lr=0.5")
    assert [step["state"] for step in again["steps"]] == ["cached", "cached", "cached", "done"]
    (folder / "helper.py").write_text("def double(x):\n    return 3 * x\n")
    changed = _json(folder, "run", "flow.py")
    assert [step["state"] for step in changed["steps"]] == ["cached", "done", "done", "done"]
    assert changed["steps"][1]["reason"] == "code of helper.double changed"

    runs = _json(folder, "status")
    assert [run["state"] for run in runs] == ["done", "done", "done"]
    assert _json(folder, "clean", "example")["flow"] == "example"
    assert len(_json(folder, "status")) == 1


def test_the_graph_is_drawn_before_and_after_a_run(folder: Path) -> None:
    assert [node["state"] for node in _json(folder, "graph", "flow.py")] == ["pending"] * 4
    (folder / "good").touch()
    assert _trek(folder, "run", "flow.py").returncode == 0
    assert "✓ check" in _trek(folder, "graph", "example").stdout
    assert "s2 --> s3" in _trek(folder, "graph", "flow.py", "--format", "mermaid").stdout
    _trek(folder, "graph", "example", "--format", "svg", "-o", "graph.svg")
    assert "download" in "".join(ElementTree.parse(folder / "graph.svg").getroot().itertext())


def test_help_shows_the_parameters_of_a_file(folder: Path) -> None:
    shown = _trek(folder, "run", "flow.py", "--help").stdout
    assert "--param lr=float  learning rate  [default: 0.1]" in shown
    assert "--from STEP" in _trek(folder, "run", "--help").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "missing.py"], "flow file 'missing.py' does not exist"),
        (["run"], "FILE is missing"),
        (["run", "flow.py", "--param", "lr"], "expected NAME=VALUE"),
        (["run", "flow.py", "--param", "rl=1"], "no parameter 'rl'"),
        (["run", "flow.py", "--param", "lr=fast"], "'lr' must be of type float, got 'fast'"),
        (["run", "flow.py", "--only", "nothing"], "no step 'nothing'"),
        (["run", "flow.py", "--only", "double"], "must run before --only"),
        (["run", "flow.py", "--parallel", "0"], "at least 1, got 0"),
        (["status", "unknown"], "no flow 'unknown' has been run"),
        (["resume", "unknown"], "no flow 'unknown' has been run"),
    ],
)
def test_bad_input_is_one_error_and_code_two(folder: Path, args: list[str], message: str) -> None:
    done = _trek(folder, *args)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_stops_all_and_can_be_resumed(folder: Path, number: signal.Signals, code: int) -> None:
    (folder / "good").touch()
    text = (folder / "flow.py").read_text()
    (folder / "flow.py").write_text(text.replace("flow.run()", f"flow.step(wait, {str(folder)!r}, after=[checked])"))
    command = [sys.executable, "-m", "trek", "flow", "run", "flow.py"]
    with subprocess.Popen(command, cwd=folder, env=dict(os.environ), stderr=subprocess.PIPE) as process:
        while not (folder / "waiting").exists():
            assert process.poll() is None
            time.sleep(0.01)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        process.communicate(timeout=240)
        assert process.returncode == code
    assert not [child for child in children if child.is_running()]
    assert _json(folder, "status", "example")["state"] == "interrupted"
    (folder / "go").touch()
    assert _json(folder, "resume", "example")["state"] == "done"


def test_resume_works_from_another_folder(tmp_path: Path, home: Path) -> None:
    """Commands named relative to the folder of the run were not found, and finished ones ran again."""
    project, elsewhere = tmp_path / "proj", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "a.py").write_text(
        "import os, pathlib, sys\n"
        "if pathlib.Path('FAIL').exists(): sys.exit(3)\n"
        "(pathlib.Path(os.environ['TREK_OUTPUT_DIR']) / 'o').write_text('x')\n"
    )
    (project / "steps.py").write_text("def f():\n    return 1\n")
    (project / "flow.yaml").write_text(
        "name: moved\n"
        "steps:\n"
        "  first: {command: [python, a.py, first], outputs: [o]}\n"
        "  script: {script: a.py, outputs: [o], after: [first]}\n"
        "  cwd: {command: [python, a.py], cwd: ../proj, outputs: [o], after: [script]}\n"
        "  function: {python: 'steps:f', after: [cwd]}\n"
    )
    run = [sys.executable, "-m", "trek", "flow"]
    assert subprocess.run([*run, "run", "flow.yaml", "--only", "first"], cwd=project, check=False).returncode == 0
    (project / "FAIL").touch()
    assert subprocess.run([*run, "run", "flow.yaml"], cwd=project, check=False, capture_output=True).returncode == 1
    (project / "FAIL").unlink()
    done = subprocess.run(
        [*run, "resume", "moved", "--json"], cwd=elsewhere, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    states = {step["name"]: step["state"] for step in json.loads(done.stdout)["steps"]}
    assert states == {"first": "cached", "script": "done", "cwd": "done", "function": "done"}


def test_a_run_whose_folder_is_gone_is_told(tmp_path: Path) -> None:
    project = tmp_path / "proj"
    project.mkdir()
    (project / "flow.yaml").write_text("name: gone\nsteps:\n  a: {command: [echo, hi]}\n")
    run = [sys.executable, "-m", "trek", "flow"]
    subprocess.run([*run, "run", "flow.yaml"], cwd=project, check=True, capture_output=True)
    shutil.rmtree(project)
    done = subprocess.run([*run, "resume", "gone"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "was started in" in done.stderr


def test_yaml_texts_hold_parameters_results_and_paths(tmp_path: Path) -> None:
    """`"lr=${lr}"` was printed as it is written."""
    (tmp_path / "steps.py").write_text("def count():\n    return 3\n\n\ndef many():\n    return [1]\n")
    (tmp_path / "flow.yaml").write_text(
        "name: texts\n"
        "params: {lr: 0.5}\n"
        "steps:\n"
        "  count: {python: 'steps:count'}\n"
        "  many: {python: 'steps:many'}\n"
        "  told: {command: [echo, 'lr=${lr}', 'n=${count}', 'at=${count.path}', '$${HOME}'], env: {A: 'a-${lr}'}}\n"
        "  not_a_text: {command: [echo, 'n=${many}']}\n"
    )
    run = [sys.executable, "-m", "trek", "flow"]
    done = subprocess.run([*run, "run", "flow.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "step 'not_a_text' failed: only a number or text can be part of a text" in done.stderr
    log = subprocess.run([*run, "logs", "texts", "told"], cwd=tmp_path, capture_output=True, text=True, check=True)
    words = log.stdout.split()
    assert (words[0], words[1], words[3]) == ("lr=0.5", "n=3", "${HOME}")
    assert Path(words[2].removeprefix("at=")).read_text() == "3"


def test_a_dataclass_of_the_flows_own_file_goes_from_step_to_step(tmp_path: Path) -> None:
    """A dataclass could not be returned; steps must not import the flow's file, where it is defined."""
    (tmp_path / "flow.py").write_text(
        "import dataclasses, numpy as np, trek\n"
        "print('read')\n"
        "@dataclasses.dataclass\nclass Found:\n    rows: object\n    name: str\n"
        "def make(): return Found(np.ones(3), 'a')\n"
        "def name(found): return f'{type(found).__name__} {found.name} {found.rows.sum():g}'\n"
        "flow = trek.Flow('classes')\n"
        "made = flow.step(make)\n"
        "for way in ('disk', 'memory'): flow.step(name, made, handover=way, name=way)\n"
        "flow.step(name, made, workers=2, name='gang')\n"
        "flow.step(lambda founds: [name(one) for one in founds], [made, made], name='list')\n"
        "if __name__ == '__main__': print(flow.run(show=False)[made].name)\n"
    )
    run = [sys.executable, "-m", "trek", "flow", "run", "flow.py", "--json"]
    for state in ("done", "cached"):
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert {step["state"] for step in json.loads(done.stdout.partition("\n")[2])["steps"]} == {state}
        assert done.stdout.count("read") == 1
    script = subprocess.run([sys.executable, "flow.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert script.stdout.splitlines() == ["read", "a"], script.stderr


def test_a_dry_run_shows_what_would_run_and_runs_nothing(tmp_path: Path, home: Path) -> None:
    (tmp_path / "flow.yaml").write_text("name: dry\nsteps:\n  a: {command: [touch, made]}\n")
    run = [sys.executable, "-m", "trek", "flow", "run", "flow.yaml", "--dry-run"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "▶ a: would run (its result is not kept)"
    as_json = subprocess.run([*run, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(as_json.stdout) == [{"name": "a", "action": "run", "reason": "its result is not kept"}]
    assert not (tmp_path / "made").exists()
    assert not (home / "flows").exists()


def test_a_log_is_followed_until_its_step_has_ended(tmp_path: Path, home: Path) -> None:
    """`logs` printed what was there and ended."""
    code = (
        "import pathlib, time\n"
        "print('first', flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        "print('grün'); print('no newline', end='')\n"
    )
    (tmp_path / "work.py").write_text(code)
    (tmp_path / "flow.yaml").write_text("name: long\nsteps:\n  a: {command: [python, work.py]}\n")
    trek = [sys.executable, "-m", "trek", "flow"]
    run = subprocess.Popen([*trek, "run", "flow.yaml"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    while not list(home.glob("flows/long/runs/*/logs/a.log")):
        time.sleep(0.02)
    follow = subprocess.Popen([*trek, "logs", "long", "a", "-f"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    with follow:
        assert follow.stdout is not None
        assert follow.stdout.readline() == "first\n"
        (tmp_path / "go").touch()
        assert follow.stdout.read() == "grün\nno newline\n"
    assert (follow.wait(timeout=240), run.wait(timeout=60)) == (0, 0)
    refused = subprocess.run([*trek, "logs", "long", "a", "-f", "--json"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2


EDITED = """
import contextlib, functools, random
import trek
import package.numbers

@functools.singledispatch
def grow(x):
    return x
@grow.register
def _(x: int):
    return x + VALUE

class Model:
    @functools.cached_property
    def weight(self):
        return VALUE

@contextlib.contextmanager
def scaled(x):
    yield x * VALUE

def dispatched():
    return grow(1)
def cached():
    return Model().weight
def managed():
    with scaled(2) as x:
        return x
def numbered():
    return package.numbers.K
def drawn(generator):
    return generator.random()
def steady():
    return 1

flow = trek.Flow("edited")
for function in (dispatched, cached, managed, numbered, steady):
    flow.step(function)
flow.step(drawn, random.Random(VALUE))
flow.command("program", ["./go.sh", "--config=c.txt"], outputs=["out"])
flow.command("module", ["python", "-m", "package.main"], outputs=["out"])
"""


def test_after_an_edit_exactly_the_steps_run_that_depend_on_it(tmp_path: Path) -> None:
    """Steps behind library decorators, dotted imports, library objects and commands were served stale results."""

    def write(value: int) -> None:
        files = {
            "flow.py": EDITED.replace("VALUE", str(value)),
            "package/__init__.py": "",
            "package/numbers.py": f"K = {value}\n# {'x' * value}\n",
            "package/main.py": f"import os\nopen(os.environ['TREK_OUTPUT_DIR'] + '/out', 'w').write('{value}')\n",
            "go.sh": f"#!/bin/sh\necho {value} > $TREK_OUTPUT_DIR/out\n",
            "c.txt": "same",
        }
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        (tmp_path / "go.sh").chmod(0o755)

    def states() -> dict[str, str]:
        done = _trek(tmp_path, "run", "flow.py", "--json")
        assert done.returncode == 0, done.stderr
        return {step["name"]: step["state"] for step in json.loads(done.stdout)["steps"]}

    write(2)
    assert set(states().values()) == {"done"}
    assert set(states().values()) == {"cached"}
    write(3)
    assert {name for name, state in states().items() if state == "cached"} == {"steady"}
    (tmp_path / "c.txt").write_text("other")
    assert {name for name, state in states().items() if state == "done"} == {"program"}
