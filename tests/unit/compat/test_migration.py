"""Scripts of other projects: the names they use, and their import lines changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trek.cli.migrate import migrate as command
from trek.compat.migration import migrate
from trek.errors import InputError

SCRIPT = '''"""determined.pytorch in a text stays."""
import os, determined as det
from determined.pytorch import (
    DataLoader as Loader,
    PyTorchTrial,
    ClipGradsL2Norm,
)
from determined import experimental  # determined

import determined.keras

class T(PyTorchTrial):
    def __init__(self, context: det.TrialContext):
        info = det.get_cluster_info()
        experimental.client.get_experiment(det.core.fly)
'''


def test_names_are_found_with_their_lines_and_what_they_become() -> None:
    found = {(one.name, one.line): one for one in migrate(SCRIPT).names}
    assert found[("determined.pytorch.DataLoader", 3)].here == "trek.compat.determined.pytorch.DataLoader"
    assert found[("determined.TrialContext", 13)].is_covered
    assert found[("determined.experimental.client.get_experiment", 15)].note == "over trek.Experiment.get"
    missing = {name: one.note for (name, _), one in found.items() if not one.is_covered}
    assert missing == {
        "determined.core.fly": "this name is not known here",
        "determined.keras": "this module is not known here",
        "determined.pytorch.ClipGradsL2Norm": "set training.clip_norm",
    }


def test_only_the_modules_of_import_lines_change() -> None:
    before, after = SCRIPT.splitlines(), migrate(SCRIPT).text.splitlines()
    assert {n + 1: line for n, line in enumerate(after) if line != before[n]} == {
        2: "import os, trek.compat.determined as det",
        3: "from trek.compat.determined.pytorch import (",
        8: "from trek.compat.determined import experimental  # determined",
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import determined", "import trek.compat.determined as determined"),
        (
            "import twister2deepnet.deepnet.util.utils as utils",
            "import trek.compat.twister2deepnet.deepnet.util.utils as utils",
        ),
        (
            "import twister2.tset.fn.SourceFunc",
            "import trek.compat.twister2.tset.fn.SourceFunc, trek.compat.twister2 as twister2",
        ),
        (
            "from elasticdl_preprocessing.layers.hashing import Hashing",
            "from trek.compat.elasticdl.preprocessing import Hashing",
        ),
        ("from elasticdl.python.worker import ps_client", "from trek.compat.elasticdl import ps_client"),
        (
            "from twister2flow.twister2.pipeline import PipelineGraph",
            "from trek.compat.twister2flow.twister2.pipeline import PipelineGraph",
        ),
        ("from .determined import x", "from .determined import x"),
        ("import determinedly", "import determinedly"),
        ("try:\n    from determined import core\nexcept ImportError: pass",
         "try:\n    from trek.compat.determined import core\nexcept ImportError: pass"),
    ],
)  # fmt: skip
def test_forms_of_imports(old: str, new: str) -> None:
    assert migrate(old).text == new


def test_a_changed_import_binds_what_the_old_one_did() -> None:
    scope: dict[str, object] = {}
    exec(migrate("import twister2.tset.fn.SourceFunc").text, scope)
    assert eval("twister2.tset.fn.SourceFunc.SourceFunc", scope) is not None


def test_check_lists_files_and_apply_keeps_a_backup(tmp_path: Path) -> None:
    script, other = tmp_path / "model_def.py", tmp_path / "plain.py"
    script.write_bytes(b"from determined.pytorch import PyTorchTrial\r\nname = 'b\xc3\xa4r'\r\n")
    other.write_text("import os\n")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "x.py").write_text("import determined\n")
    runner = CliRunner()
    (entry,) = json.loads(runner.invoke(command, ["check", str(tmp_path), "--json"]).output)
    assert (entry["file"], len(entry["names"]), entry["names"][0]["is_covered"]) == (str(script), 1, True)
    assert entry["changes"][0]["line"] == 1
    assert "1 file(s) use 1 name(s)" in runner.invoke(command, ["check", str(script)]).output
    before = script.read_bytes()
    assert runner.invoke(command, ["apply", str(tmp_path)], input="n\n").exit_code == 1
    assert script.read_bytes() == before
    done = runner.invoke(command, ["apply", str(tmp_path), "--yes"])
    assert "+from trek.compat.determined.pytorch import PyTorchTrial" in done.output
    assert script.read_bytes() == before.replace(b"from determined", b"from trek.compat.determined")
    assert (tmp_path / "model_def.py.orig").read_bytes() == before
    assert other.read_text() == "import os\n"
    assert "Nothing to change" in runner.invoke(command, ["apply", str(tmp_path), "--yes"]).output


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"broken.py is not valid Python"):
        migrate("def (", file="broken.py")
    with pytest.raises(InputError, match=r"not found\. Name a Python file"):
        CliRunner().invoke(command, ["check", str(tmp_path / "no")], standalone_mode=False, catch_exceptions=False)
    script = tmp_path / "a.py"
    script.write_text("import determined\n")
    (tmp_path / "a.py.orig").touch()
    with pytest.raises(InputError, match="exists already"):
        CliRunner().invoke(command, ["apply", str(script), "-y"], standalone_mode=False, catch_exceptions=False)
