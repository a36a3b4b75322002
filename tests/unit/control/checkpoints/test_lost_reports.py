"""A run that is lost with its machine: what it could not report there is trained again, and not skipped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

MakePlane = Callable[..., Any]
# The first run leaves a whole checkpoint that nobody was told of; every run goes on until it is killed.
SAVING = """
home = os.path.dirname(run_dir) + "/checkpoints/batch-40"
if run == 1:
    os.makedirs(home)
    made = {"uuid": "c1", "batches": 40, "metrics": {}, "time_s": 1.0, "files": {}, "owner": uuid}
    with open(home + "/manifest.json", "w") as file: json.dump(made, file)
time.sleep(600)
"""


@pytest.mark.parametrize(("is_lost", "counted"), [(True, []), (False, ["batch-40"])])
def test_a_checkpoint_counts_unless_its_reports_were_lost_with_the_machine(
    make_plane: MakePlane, is_lost: bool, counted: list[str]
) -> None:
    """A search on Ray missed the reports before a checkpoint that a node had written just before it died."""
    plane = make_plane(SAVING)
    plane.create()
    manifest = plane.layout.trial(plane.trial()) / "checkpoints" / "batch-40" / "manifest.json"
    plane.run_until(manifest.exists)
    gang = plane.supervisor.running[1].gang
    gang._member("worker", 0).is_unreached = is_lost  # as an engine over several machines says it
    os.kill(gang.pids[0], signal.SIGKILL)
    plane.run_until(lambda: plane.trial().run == 2 and bool(plane.supervisor.running))
    assert plane.services.trials.assignment(1, run=2).checkpoints == counted
    plane.run_until(lambda: manifest.exists() is not is_lost)
    os.kill(plane.supervisor.running[1].gang.pids[0], signal.SIGKILL)
    plane.run_until(lambda: plane.trial().run == 3 and bool(plane.supervisor.running))
    assert plane.services.trials.assignment(1, run=3).checkpoints == counted, "nor does it come back"
