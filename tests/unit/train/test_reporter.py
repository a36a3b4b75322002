"""Reporter: a program with a loop of its own reports and saves as a run of Trek does."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import trek
from trek.errors import InputError, NotFound
from trek.world import World


def save(reporter: trek.Reporter, folder: Path, text: str, *, batches: int) -> str:
    (folder / "inner").mkdir(parents=True, exist_ok=True)
    (folder / "inner" / "model.txt").write_text(text)
    (folder / "empty").touch()
    return reporter.save(folder, batches=batches, metadata={"steps_completed": batches})


def test_metrics_are_written_beside_the_checkpoints(tmp_path: Path) -> None:
    with trek.Reporter(folder=tmp_path / "run") as reporter:
        reporter.log({"loss": 0.5}, batches=1)
        reporter.log({"error": 0.25}, batches=2, group="validation")
        uuid = save(reporter, tmp_path / "files", "two", batches=2)
        reporter.log_progress(0.5)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["group"], row["batches"], row["metrics"]) for row in rows] == [
        ("training", 1, {"loss": 0.5}),
        ("validation", 2, {"error": 0.25}),
    ]
    (folder,) = (tmp_path / "run" / "checkpoints").iterdir()
    checkpoint = trek.Checkpoint(folder)
    assert (checkpoint.uuid, checkpoint.batches, checkpoint.metrics) == (uuid, 2, {"error": 0.25})


def test_a_saved_folder_comes_back_whole(tmp_path: Path) -> None:
    with trek.Reporter(folder=tmp_path / "run") as reporter:
        assert reporter.latest is None
        save(reporter, tmp_path / "files", "one", batches=1)
        uuid = save(reporter, tmp_path / "files", "two", batches=2)
    with trek.Reporter(folder=tmp_path / "run") as again:
        assert again.latest == uuid
        assert again.metadata(uuid) == {"steps_completed": 2}
        with again.restore(uuid) as folder:
            assert (folder / "inner" / "model.txt").read_text() == "two"
            assert (folder / "empty").read_bytes() == b""
        assert not folder.exists()
        with pytest.raises(NotFound, match="checkpoint 'abc' not found"), again.restore("abc"):
            pass


def test_sigterm_asks_to_stop(tmp_path: Path) -> None:
    with trek.Reporter(folder=tmp_path) as reporter:
        assert not reporter.should_stop
        os.kill(os.getpid(), signal.SIGTERM)
        assert reporter.should_stop


def test_mistakes_are_named(tmp_path: Path) -> None:
    with trek.Reporter(folder=tmp_path, world=World(rank=1, size=2)) as reporter:
        reporter.log({"loss": 1.0}, batches=1)
        with pytest.raises(InputError, match="only the leader"):
            reporter.save(tmp_path, batches=1)
        with pytest.raises(InputError, match="whole number of at least 0, got -1"):
            reporter.log({"loss": 1.0}, batches=-1)
        with pytest.raises(InputError, match="from 0 to 1, got 7"):
            reporter.log_progress(7)
        with pytest.raises(InputError, match="metric 'loss' must be a number"):
            reporter.log({"loss": "low"}, batches=1)
    assert not (tmp_path / "metrics.jsonl").exists()
