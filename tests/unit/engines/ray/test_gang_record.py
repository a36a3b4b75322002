"""What is written down about a gang, and found again."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from trek.engines.ray.gang_record import FILE, ActorRecord, GangRecord
from trek.errors import InputError


def test_a_record_is_read_as_it_was_written_and_only_by_its_owner(tmp_path: Path) -> None:
    record = GangRecord(secret="s", master=("10.0.0.1", 20000), addresses={"server": ["10.0.0.2:3"]})
    record.members.append(ActorRecord("gang/worker/0", "worker", 0, "node", "10.0.0.1", "id", log_start=7, bundle=1))
    record.write(tmp_path / "out")
    assert GangRecord.read(tmp_path / "out") == record
    assert stat.S_IMODE((tmp_path / "out" / FILE).stat().st_mode) == 0o600


def test_a_gang_that_is_not_kept_leaves_no_record() -> None:
    GangRecord().write(None)


def test_a_folder_without_a_record_has_no_gang(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no gang was started"):
        GangRecord.read(tmp_path)
