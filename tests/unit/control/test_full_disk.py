"""A disk that is really full: one clear error, nothing lost that was recorded, and it goes on when there is room."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trek.client.models import MetricPoint, Report
from trek.errors import StorageError

MakePlane = Callable[..., Any]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The control plane's home on a disk of 2 MB."""
    home = tmp_path / "control-home"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(home)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield home
    subprocess.run(["umount", "-l", str(home)], check=True)


def _fill(home: Path) -> Path:
    filler = home / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def _report(plane: Any, start: int) -> None:
    points = [
        MetricPoint(group="training", batches=at, metrics={"loss": 1.0}, time_s=0.0)
        for at in range(start, start + 2000)
    ]
    plane.services.trials.report(1, Report(run=1, metrics=points))


def _report_until_full(plane: Any) -> None:
    for start in range(2000, 200_000, 2000):
        _report(plane, start)


def test_a_full_disk_is_told_loses_nothing_and_ends_nothing(small_disk: Path, make_plane: MakePlane) -> None:
    plane = make_plane("while not os.path.exists(run_dir + '/go'): time.sleep(0.05)\nprint('y'); outcome('done')")
    number = plane.create()
    plane.supervisor.start()
    _await(lambda: plane.supervisor.running)  # its process is there
    _report(plane, 0)
    filler = _fill(small_disk)
    with pytest.raises(StorageError, match="disk is full"):
        _report_until_full(plane)
    kept = len(plane.services.trials.metrics(1))
    assert kept >= 2000
    assert kept % 2000 == 0
    filler.unlink()
    (plane.layout.run(plane.trial()) / "go").touch()
    _await(lambda: plane.services.experiments.get(number).state == "completed")
    assert [line.text for line in plane.services.logs.read(trial_id=1)] == ["y"]
    assert len(plane.services.trials.metrics(1)) == kept
    plane.supervisor.stop()


def test_a_command_on_a_full_disk_gives_one_sentence_and_exit_code_3(small_disk: Path) -> None:
    _fill(small_disk)
    env = {name: value for name, value in os.environ.items() if not name.startswith("TREK_")}
    done = subprocess.run(
        [sys.executable, "-m", "trek", "experiment", "list"],
        env={**env, "TREK_HOME": str(small_disk)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 3
    assert "\ntrek: error: " in f"\n{done.stderr}"
    assert "Traceback" not in done.stderr


def _await(is_true: Callable[[], Any], *, timeout_s: float = 240) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
