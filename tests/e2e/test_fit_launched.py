"""A script that calls `trek.fit` and is started as several processes from outside trains as those processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trek
from trek.testing.trials import PointsTrial

SCRIPT = """
import json, sys
import trek
from trek.testing.trials import PointsTrial

hparams = {"global_batch_size": 6, "rows": 63, "double": True, **json.loads(sys.argv[1])}
settings = {} if len(sys.argv) < 3 else {"resume": sys.argv[2]}
result = trek.fit(
    PointsTrial, hparams=hparams, max_length=trek.epochs(2), name="run", show_progress=False, **settings
)
if result.checkpoint is not None:
    print(json.dumps({"batches": result.checkpoint.batches, "best": result.best, "folder": result.path.name}))
"""


def launch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "trek", "launch", "--workers", "2", "script.py", *arguments]
    return subprocess.run(
        command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=100, check=False
    )


def test_launched_processes_train_together_in_one_run_and_resume_it(tmp_path: Path, home: Path) -> None:
    first = launch(tmp_path, '{"stop_at": 10}')
    assert first.returncode == 0, first.stderr
    assert '"batches": 11' in first.stdout  # asked in the tenth, agreed between the epochs
    second = launch(tmp_path, "{}", "latest")
    assert second.returncode == 0, second.stderr
    (line,) = second.stdout.splitlines()
    told = json.loads(line.removeprefix("[rank 0] "))
    assert [path.name for path in (home / "runs").iterdir()] == ["run"]
    assert told["batches"] == 22
    alone = trek.fit(
        PointsTrial, hparams={"global_batch_size": 6, "rows": 63, "double": True}, max_length=trek.epochs(2),
        name="alone", show_progress=False,
    )  # fmt: skip
    assert alone.best is not None
    assert told["best"]["validation_loss"] == pytest.approx(alone.best["validation_loss"], rel=1e-9)
