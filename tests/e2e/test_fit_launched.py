"""A script that calls `trek.fit` and is started as several processes from outside trains as those processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
told = {"batches": result.checkpoint.batches, "best": result.best, "folder": result.path.name}
print(json.dumps({**told, "rows": len(result.metrics), "epochs": len(result.epochs)}))
"""


def launch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "trek", "launch", "--workers", "2", "script.py", *arguments]
    return subprocess.run(
        command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=240, check=False
    )


def results(launched: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The different results that the ranks were given."""
    told = [json.loads(line.split("] ", 1)[-1]) for line in launched.stdout.splitlines()]
    assert len(told) == 2
    return [one for index, one in enumerate(told) if one not in told[:index]]


def test_every_rank_of_a_second_run_gets_the_second_result(tmp_path: Path, home: Path) -> None:
    """Ranks other than the leader used to get the folder and metrics of the first run, and no checkpoint."""
    for folder, rate in (("run", 0.1), ("run-2", 0.4)):
        launched = launch(tmp_path, json.dumps({"lr": rate}))
        assert launched.returncode == 0, launched.stderr
        (told,) = results(launched)
        assert told["folder"] == folder
        assert (told["batches"], told["epochs"]) == (22, 2)
        rows = (home / "runs" / folder / "metrics.jsonl").read_text().splitlines()
        assert told["rows"] == len(rows)


def test_launched_processes_train_together_in_one_run_and_resume_it(tmp_path: Path, home: Path) -> None:
    first = launch(tmp_path, '{"stop_at": 10}')
    assert first.returncode == 0, first.stderr
    assert '"batches": 11' in first.stdout  # asked in the tenth, agreed between the epochs
    second = launch(tmp_path, "{}", "latest")
    assert second.returncode == 0, second.stderr
    (told,) = results(second)
    assert [path.name for path in (home / "runs").iterdir()] == ["run"]
    assert told["batches"] == 22
    alone = trek.fit(
        PointsTrial, hparams={"global_batch_size": 6, "rows": 63, "double": True}, max_length=trek.epochs(2),
        name="alone", show_progress=False,
    )  # fmt: skip
    assert alone.best is not None
    assert told["best"]["validation_loss"] == pytest.approx(alone.best["validation_loss"], rel=1e-9)
