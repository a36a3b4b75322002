"""What is written for Weights & Biases, offline: read from the files that `wandb sync` would upload."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("wandb", reason="Weights & Biases is not installed")

from wandb.proto.wandb_internal_pb2 import Record

from trek.integrations.wandb_recorder import WandbRecorder
from trek.testing.logger_conformance import LoggerConformance, Recorded
from trek.train.loggers import EndState, JobIdentity, Logger, MetricRow, open_logger

pytestmark = pytest.mark.filterwarnings("ignore")
_BLOCK_BYTES, _FILE_HEADER_BYTES = 32768, 7


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(os.environ)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    yield
    for name in set(os.environ) - set(before):  # W&B sets some for its own processes
        if name.startswith("WANDB"):
            del os.environ[name]


def records(folder: Path) -> list[Any]:
    """Every record of all runs in `folder`, in the order in which the runs began."""
    found = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in _entries(path.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            found.append(record)
    return found


def _entries(content: bytes) -> Iterator[bytes]:
    """A log of blocks, in which an entry is whole (1), or its first (2), middle (3) and last (4) part."""
    position, parts = _FILE_HEADER_BYTES, b""
    while position + 7 <= len(content):
        left = _BLOCK_BYTES - position % _BLOCK_BYTES
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + 7])
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def history(folder: Path) -> list[dict[str, Any]]:
    rows = [record.history.item for record in records(folder) if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row} for row in rows]


class TestWandb(LoggerConformance):
    """In this process; the logger itself runs it in one of its own."""

    states: ClassVar[dict[EndState, str]] = {"completed": "0", "failed": "1", "killed": "1", "paused": "0"}

    @pytest.fixture
    def make_logger(self, tmp_path: Path) -> Callable[[], Logger]:
        return lambda: WandbRecorder(folder=str(tmp_path))

    def recorded(self, folder: Path) -> list[Recorded]:
        return [
            (key.rpartition("/")[0], row["batches"], key.rpartition("/")[2], value)
            for row in history(folder)
            for key, value in row.items()
            if not key.startswith("_") and key != "batches"
        ]

    def ended(self, folder: Path) -> str | None:
        codes = [str(one.exit.exit_code) for one in records(folder) if one.WhichOneof("record_type") == "exit"]
        return codes[-1] if codes else None


def test_the_logger_writes_from_a_process_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logger = open_logger("wandb", folder=tmp_path, project="mine")
    logger.identify(JobIdentity(key="abc", name="n/1", trial_id=1, experiment_name="n"))
    logger.start(name="n/1", hparams={"lr": 0.5})
    logger.log_metrics(MetricRow("training", 3, 0.0, {"loss": 0.25}, time_s=1e9))
    logger.end("completed")
    logger.close()
    assert capfd.readouterr().err == ""
    assert [row["training/loss"] for row in history(tmp_path)] == [0.25]
    (run,) = [one.run for one in records(tmp_path) if one.WhichOneof("record_type") == "run"]
    assert (run.run_id, run.project, run.run_group, run.job_type) == ("abc", "mine", "n", "trial")
