"""A trial that puts anything else where the control plane expects its files harms itself alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.foreign_files import KINDS
from trek.control.trials import spool_intake
from trek.errors import NotFound

MakePlane = Callable[..., Any]
_ROOT = Path(__file__).parents[4]
_REPLACE = f"""
import shutil; from pathlib import Path; sys.path.insert(0, {str(_ROOT)!r})
from tests.support.foreign_files import put
trial = Path(run_dir).parent
def replace(*paths):
    for path in paths:
        path.unlink(missing_ok=True)
        put("KIND", path)
replace(trial / "checkpoints/batch-1/manifest.json", trial / "checkpoints/.writing-1/x", trial / "artifacts/a.txt")
replace(Path(folder) / "spool.jsonl", Path(run_dir) / "rank_0.log")
"""
_ENDS = """
replace(Path(folder) / "outcome.json")
"""
_STAYS = """
for name in ("gang.json", "members.json", "meeting.json", "rank_0.json"): replace(Path(run_dir) / name)
Path(run_dir, "ready").touch()
time.sleep(600)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_ends_whatever_lies_in_its_folders_and_others_go_on(
    make_plane: MakePlane, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe in place of a manifest stopped the supervisor for ever, and with it the trials of all users."""
    monkeypatch.setattr(spool_intake, "MAX_SPOOL_BYTES", 1 << 24)
    script = (_REPLACE + _ENDS).replace("KIND", kind)
    plane = make_plane(f"if os.environ.get('IS_FOREIGN'):\n    exec({script!r})\nelse: outcome('done')")
    plane.supervisor._max_log_bytes = 1 << 20
    foreign = {"environment_variables": {"IS_FOREIGN": "1"}}
    number, other = plane.create(environment=foreign, max_restarts=0), plane.create()
    assert plane.run_to_end(number).state == "errored"
    assert plane.run_to_end(other).state == "completed"
    assert plane.services.checkpoints.all() == []
    assert not (plane.layout.trial(plane.trial()) / "checkpoints" / ".writing-1").exists()
    if kind != "sparse":
        assert plane.services.artifacts.all(1) == []
        with pytest.raises(NotFound):
            plane.services.artifacts.open(1, "a.txt")
    plane.services.experiments.delete(number)
    assert not plane.layout.trial(plane.trial(2)).with_name("1").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_control_plane_starts_whatever_lies_in_the_folders_of_runs(make_plane: MakePlane, kind: str) -> None:
    before = make_plane((_REPLACE + _STAYS).replace("KIND", kind))
    before.create(max_restarts=0)
    before.run_until(lambda: before.supervisor.running)
    before.run_until(lambda: (before.layout.run(before.trial()) / "ready").exists())
    after = make_plane()
    after.supervisor._find_gangs()
    assert after.run_to_end(after.create()).state == "completed"


@pytest.mark.parametrize(
    "text", ["'[' * 100_000", """'{"files": 1}'""", """'{"uuid": "u", "files": {"a": {"bytes": "1"}}}'""", "''"]
)
def test_a_manifest_that_is_not_one_counts_as_no_checkpoint(make_plane: MakePlane, text: str) -> None:
    """Brackets that are too deep for a parser ended the round of the supervisor, again and again."""
    plane = make_plane(f"""
os.makedirs(run_dir + "/../checkpoints/batch-1")
with open(run_dir + "/../checkpoints/batch-1/manifest.json", "w") as file: file.write({text})
outcome("done")
""")
    assert plane.run_to_end(plane.create()).state == "completed"
    assert plane.services.checkpoints.all() == []


def test_a_run_that_cannot_be_taken_in_does_not_hold_up_the_others(
    make_plane: MakePlane, caplog: pytest.LogCaptureFixture
) -> None:
    plane = make_plane()
    number = plane.create()
    plane.run_until(lambda: plane.supervisor.running)
    logs = plane.supervisor.running[1].logs
    taken, logs.take_part = logs.take_part, lambda *, is_over: [].pop()
    assert plane.run_to_end(plane.create()).state == "completed"
    assert plane.services.experiments.get(number).state == "running"
    assert [one.message for one in caplog.records if "cannot be taken in" in one.message] == [
        "trial 1 cannot be taken in: IndexError: pop from empty list"
    ], "once, not in every round"
    logs.take_part = taken
    assert plane.run_to_end(number).state == "completed"
