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
        ("x = 'determined'; import determined", "x = 'determined'; import trek.compat.determined as determined"),
        ("from determined . pytorch import *", "from trek.compat.determined.pytorch import *"),
        ("import elasticdl.python.worker.ps_client", "import elasticdl.python.worker.ps_client"),
        ("import elasticai_api.pytorch as api", "import elasticai_api.pytorch as api"),
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


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("import elasticdl.python.worker.ps_client", "write `import elasticdl.python.worker.ps_client as ps_client`"),
        ("import elasticai_api.pytorch as api", "import the modules in it instead"),
        ("import elasticdl.cluster", "this module is not known here"),
    ],
)
def test_modules_that_cannot_be_imported_so_are_named_with_a_remedy(script: str, note: str) -> None:
    (found,) = migrate(script).names
    assert not found.is_covered
    assert note in found.note


def test_modules_of_third_parties_have_stand_ins_in_scripts_that_need_them() -> None:
    imports = "import torch.distributed as dist\nfrom mpi4py import MPI\n"
    deepnet = "from twister2deepnet.deepnet.data.DataUtil import DataUtil\n"
    here = "trek.compat.twister2deepnet.deepnet"
    assert migrate(imports + "dist.init_process_group('mpi')").changes == [], "not a script of Twister2"
    changed = migrate(f"{imports}{deepnet}dist.init_process_group('mpi')").text.splitlines()
    assert changed[:2] == [f"import {here}.torch.distributed as dist", "from trek.compat.mpi4py import MPI"]
    kept = migrate(f"{imports}{deepnet}dist.init_process_group('gloo')").text.splitlines()
    assert kept[0] == "import torch.distributed as dist", "torch has this backend"


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


def test_check_names_files_that_it_cannot_read_and_checks_the_others(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("import determined as det\n")
    (tmp_path / "older.py").write_text('print "two"\n')
    (tmp_path / "template.py").write_bytes(b"\xff{{ name }}")
    done = CliRunner().invoke(command, ["check", str(tmp_path)])
    assert done.exit_code == 0
    assert "✓ line 1: determined → trek.compat.determined" in done.output
    assert f"Not read: {tmp_path / 'older.py'} is not valid Python" in done.output
    assert (
        "1 file(s) use 1 name(s) of other projects; 0 of them do not exist here. 2 file(s) were not read."
        in done.output
    )
    entries = json.loads(CliRunner().invoke(command, ["check", "--json", str(tmp_path)]).output)
    assert [(Path(one["file"]).name, len(one["names"]), one["error"] is None) for one in entries] == [
        ("good.py", 1, True),
        ("older.py", 0, False),
        ("template.py", 0, False),
    ]
    with pytest.raises(InputError, match=r"older\.py is not valid Python"):
        apply(tmp_path)
    assert not (tmp_path / "good.py.orig").exists()


def test_apply_fails_where_a_file_needs_names_that_do_not_exist(tmp_path: Path) -> None:
    script = tmp_path / "model_def.py"
    script.write_text("from determined.pytorch import samplers, DataLoader\n")
    done = CliRunner().invoke(command, ["apply", "--yes", str(script)], standalone_mode=False)
    assert "Changed" in done.output
    assert f"{script}, line 1: determined.pytorch.samplers is not here (trek.DataLoader divides" in done.output
    assert str(done.exception) == "1 name(s) do not exist here. Change the lines above by hand."
    assert script.read_text() == "from trek.compat.determined.pytorch import samplers, DataLoader\n"


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"broken.py is not valid Python"):
        migrate("def (", file="broken.py")
    with pytest.raises(InputError, match=r"not found\. Name a Python file"):
        CliRunner().invoke(command, ["check", str(tmp_path / "no")], standalone_mode=False, catch_exceptions=False)


def apply(place: Path) -> None:
    CliRunner().invoke(command, ["apply", str(place), "-y"], standalone_mode=False, catch_exceptions=False)


def test_nothing_is_written_if_one_of_the_backups_exists(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("import determined\n")
    (tmp_path / "b.py.orig").touch()
    with pytest.raises(InputError, match=r"b\.py\.orig exists already"):
        apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == "import determined\n"


def test_a_declared_encoding_is_kept(tmp_path: Path) -> None:
    script = tmp_path / "latin.py"
    script.write_bytes("# coding: latin-1\nimport determined\nname = 'bär'\n".encode("latin-1"))
    apply(script)
    expected = "# coding: latin-1\nimport trek.compat.determined as determined\nname = 'bär'\n"
    assert script.read_bytes() == expected.encode("latin-1")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"name = '\xe4'\nimport determined\n", r"a\.py is not UTF-8, nor"),
        (b"# coding: klingon\nimport determined\n", r"a\.py is not UTF-8, nor of an encoding that it declares"),
        (b"import determined\nif :\n", r"a\.py is not valid Python: .*line 2"),
        (b"import determined\nx = '\x00'\n", r"a\.py is not valid Python"),
        (b"import determined\nx = " + b"(" * 9999 + b")" * 9999, r"a\.py is "),
    ],
)
def test_a_file_that_cannot_be_read_gets_one_error_and_stays(raw: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(raw)
    with pytest.raises(InputError, match=message):
        apply(tmp_path)
    assert (tmp_path / "a.py").read_bytes() == raw
