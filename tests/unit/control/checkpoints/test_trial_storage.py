"""What counts as a checkpoint of a trial: only what is in its own storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.client.models import CheckpointReport, Report
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.errors import InputError

MakePlane = Callable[..., Any]


@pytest.fixture
def storage(tmp_path: Path) -> TrialStorage:
    made = TrialStorage(root=str(tmp_path / "root"), inner="experiment_1/trial_1-abc")
    Path(made.address).mkdir(parents=True)
    return made


def test_only_direct_folders_of_the_storage_are_its_own(storage: TrialStorage, tmp_path: Path) -> None:
    assert storage.has(f"{storage.address}/batch-1")
    for path in (
        "/etc/ssh",
        storage.address,
        f"{storage.address}/",
        f"{storage.address}/..",
        f"{storage.address}/../trial_2-abc/c",
        f"{storage.address}/a/b",
        f"{storage.address}/.hidden",
        f"{storage.address}x/c",
        f"file:///etc/{storage.address}/c",
        f"{storage.address}//c",
        f"{storage.address}/./c",
        f"memory://{storage.address}/c",
        "batch-1",
        "",
    ):
        assert not storage.has(path), path


def test_a_link_is_not_its_own_wherever_it_is_below_the_root(storage: TrialStorage, tmp_path: Path) -> None:
    """A link put into a trial's folder made the master serve and delete what it led to."""
    outside = tmp_path / "outside"
    (outside / "trial_1-abc" / "c").mkdir(parents=True)
    (outside / "precious").touch()
    link = Path(storage.address) / "c"
    link.symlink_to(outside)
    assert not storage.has(str(link))
    with pytest.raises(InputError, match="no link"):
        storage.remove(str(link))
    link.unlink()
    Path(storage.address).rmdir()
    Path(storage.address).parent.rmdir()
    Path(storage.address).parent.symlink_to(outside)
    assert not storage.has(f"{storage.address}/c")
    storage.remove_all()
    assert (outside / "trial_1-abc" / "c").is_dir()
    assert (outside / "precious").exists()


def test_a_root_that_is_itself_a_link_is_the_users_choice(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "storage").symlink_to(tmp_path / "disk")
    assert TrialStorage(root=str(tmp_path / "storage"), inner="trials/1/checkpoints").has(
        f"{tmp_path}/storage/trials/1/checkpoints/c"
    )


@given(st.text(alphabet="ab./\\:%?#~ \x00\n", max_size=30))
def test_whatever_is_appended_stays_inside(text: str) -> None:
    for root in ("s3://bucket/runs", "/nowhere/runs"):
        storage = TrialStorage(root=root, inner="experiment_1/trial_1-abc")
        for address in (text, f"{root}/{text}", f"{storage.address}{text}", f"{storage.address}/{text}"):
            if storage.has(address):
                name = address.removeprefix(f"{storage.address}/").lstrip("/")  # a doubled slash is one
                assert name
                assert not set(name) & set("/\\:%?#~ \n")
                assert name.strip(".")


# -- the control plane


@pytest.fixture
def plane(make_plane: MakePlane) -> Any:
    """A plane with trial 1 running."""
    made = make_plane("time.sleep(600)")
    made.create()
    made.run_until(lambda: made.supervisor.running)
    return made


def report(plane: Any, path: Path) -> None:
    found = CheckpointReport(uuid="u", batches=1, path=str(path), num_bytes=1, time_s=0.0)
    plane.services.trials.report(1, Report(run=1, checkpoints=[found]))


def test_a_report_cannot_name_a_folder_elsewhere(plane: Any, tmp_path: Path) -> None:
    """A trial reported any folder as its checkpoint: viewers downloaded it, and deleting removed it."""
    precious = tmp_path / "precious"
    precious.mkdir()
    with pytest.raises(InputError, match="not a checkpoint of this trial"):
        report(plane, precious)
    assert plane.services.checkpoints.all() == []


def test_a_link_swapped_in_later_is_neither_served_nor_followed(plane: Any, tmp_path: Path) -> None:
    """A folder that was replaced by a link after the report was served, and emptied when it was deleted."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years of work")
    folder = plane.layout.trial(plane.trial()) / "checkpoints" / "c"
    folder.mkdir(parents=True)
    report(plane, folder)
    folder.rmdir()
    folder.symlink_to(precious)
    with pytest.raises(InputError, match="no link"), plane.services.checkpoints.folder("u"):
        pass
    plane.services.experiments.kill(1)
    plane.run_to_end(1)
    with pytest.raises(InputError, match="no link"):
        plane.services.checkpoints.delete("u")
    plane.services.experiments.delete(1)
    assert (precious / "thesis.tex").exists()


def test_spooled_reports_of_folders_elsewhere_are_ignored(make_plane: MakePlane, tmp_path: Path) -> None:
    plane = make_plane(
        """
found = {"uuid": "u", "batches": 1, "path": "/etc/ssh", "num_bytes": 1, "time_s": 0}
with open(folder + "/spool.jsonl", "w") as file: file.write(json.dumps({"run": run, "checkpoints": [found]}) + chr(10))
outcome("done")
"""
    )
    assert plane.run_to_end(plane.create()).state == "completed"
    assert plane.services.checkpoints.all() == []
