"""Commands and scripts as steps of flows."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

import trek
from trek.errors import TrainingError
from trek.flow import OUTPUT_DIR, Run


def one(log: str) -> int:
    with open(log, "a") as file:
        file.write("one\n")
    return 1


def _run(flow: trek.Flow, **settings: Any) -> Run:
    return flow.run(show=False, parallel=2, **settings)


def test_a_command_that_exits_with_three_is_followed_by_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = trek.Flow("three")
    bad = flow.command("bad", ["sh", "-c", "echo last words >&2; exit 3"])
    flow.step(one, str(log), after=[bad])
    with pytest.raises(TrainingError, match=r"step 'bad' failed: .* exited with code 3") as error:
        _run(flow)
    assert "last words" in error.value.traceback_text
    assert not log.exists()


def test_a_command_that_hangs_is_ended_too() -> None:
    flow = trek.Flow("hanging-command")
    flow.command("hang", ["sleep", "600"], timeout_s=0.5)
    with pytest.raises(TrainingError, match=r"timed out after 0\.5 s"):
        _run(flow)


def test_scripts_and_commands_honour_folder_variables_workers_and_hostfile(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=1\n127.0.0.2 slots=1\n")
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
            import os, sys
            if os.environ["RANK"] == "0":
                with open(os.path.join(os.environ["TREK_OUTPUT_DIR"], "out.txt"), "w") as file:
                    file.write(" ".join([os.environ["WORLD_SIZE"], os.environ["LOCAL_WORLD_SIZE"],
                                         os.environ["LEVEL"], os.path.basename(os.getcwd()), *sys.argv[1:]]))
        """)
    )
    flow = trek.Flow("scripts")
    level = flow.param("level", 3)
    out = flow.script(
        "train.py", "--level", level, workers=2, hostfile=tmp_path / "hosts", cwd=tmp_path,
        env={"LEVEL": "high"}, outputs=["out.txt"],
    )  # fmt: skip
    text = flow.step(lambda path: path.read_text(), out)
    assert _run(flow)[text] == f"2 1 high {tmp_path.name} --level 3"
    assert _run(flow).states()["train"] == "cached"
    (tmp_path / "train.py").write_text((tmp_path / "train.py").read_text().replace("sys.argv[1:]", "['changed']"))
    assert _run(flow)[text].endswith("changed")


def test_a_result_in_a_command_is_its_number_or_text() -> None:
    """The description of the artefact was handed over instead."""
    flow = trek.Flow("words")
    word, number = flow.step(lambda: "hello", name="word"), flow.step(lambda: 3, name="number")
    told = flow.command(
        "tell", ["sh", "-c", 'echo "$1 $2" > "$3/a.txt"', "sh", word, number, OUTPUT_DIR], outputs=["a.txt"]
    )
    assert Path(_run(flow)[told]).read_text() == "hello 3\n"


def test_a_command_must_leave_the_outputs_it_promised(tmp_path: Path) -> None:
    flow = trek.Flow("promise")
    made = flow.command("make", ["sh", "-c", 'echo hello > "$1/a.txt"', "sh", OUTPUT_DIR], outputs=["a.txt"])
    assert _run(flow).path(made).read_text() == "hello\n"
    flow.command("forget", ["true"], outputs=["b.txt"])
    with pytest.raises(TrainingError, match=r"did not write 'b\.txt'"):
        _run(flow)


def test_a_script_with_a_syntax_error_fails_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    flow = trek.Flow("broken")
    flow.script("broken.py", cwd=tmp_path, outputs=["x"])
    with pytest.raises(TrainingError, match="exited with code 1") as error:
        _run(flow)
    assert "SyntaxError" in error.value.traceback_text
