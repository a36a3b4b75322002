"""Twister2Flow's pipelines: each fault of the original is a test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trek.compat.twister2flow.bootstrap import PytorchJobSubmitter
from trek.compat.twister2flow.twister2.pipeline import PipelineGraph
from trek.compat.twister2flow.twister2.task.PythonTask import PythonTask
from trek.compat.twister2flow.twister2.task.PytorchTask import PytorchTask
from trek.compat.twister2flow.twister2.task.Twister2Task import Twister2Task
from trek.errors import InputError, TrainingError


def task(folder: Path, name: str, code: str) -> PythonTask:
    (folder / f"{name}.py").write_text(code)
    made = PythonTask(name=name)
    made.set_command("python3")
    made.set_script_path(script_path=f"{name}.py")
    made.set_exec_path(exec_path=str(folder))
    return made


def test_a_new_graph_has_no_tasks_of_another(tmp_path: Path) -> None:
    first = PipelineGraph.PipelineGraph(name="one")
    first.add_task(task(tmp_path, "a", ""))
    assert "a" in str(first)
    assert PipelineGraph.PipelineGraph(name="two").tasks == []


def test_tasks_run_in_order_in_their_folder_and_a_failure_ends_the_pipeline(tmp_path: Path) -> None:
    graph = PipelineGraph.PipelineGraph(name="chain")
    graph.add_task(task(tmp_path, "first", "open('log', 'a').write('first ')"))
    graph.add_task(task(tmp_path, "second", "open('log', 'a').write('second '); raise SystemExit(3)"))
    graph.add_task(task(tmp_path, "third", "open('log', 'a').write('third ')"))
    with pytest.raises(TrainingError, match=r"step 'second' failed: .* code 3"):
        graph.execute()
    assert (tmp_path / "log").read_text() == "first second "


def test_commands_of_the_kinds_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").touch()
    t2, pt = Twister2Task(name="t2"), PytorchTask(name="pt", parallelism=3)
    for one in (t2, pt):
        one.set_script_path(script_path="s.py")
    t2.set_command("twister2 submit standalone python")
    assert t2.argv() == [sys.executable, "s.py"]
    pt.set_command()
    pt.hostfile = "hosts"
    words = ["-m", "trek", "launch", "--workers", "3", "--hostfile", "hosts"]
    assert pt.argv()[1:] == [*words, "-m", "trek.compat.twister2flow.bootstrap.mpi_script", "s.py"]


def test_mistakes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="task 'x' has no script"):
        PythonTask(name="x").argv()
    with pytest.raises(InputError, match="has no tasks"):
        PipelineGraph.PipelineGraph(name="empty").execute()
    with pytest.raises(InputError, match="parallelism must be a whole number of at least 1, got 0"):
        PytorchTask(parallelism=0)
    assert PytorchJobSubmitter.main(["--script", str(tmp_path / "no.py")]) == 2
    assert "not found" in capsys.readouterr().err
