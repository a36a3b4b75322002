"""Checkpoints through the control plane, seen from the trial: what it may expect of a Storage, and of an outage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trek.client.client import Address
from trek.client.models import Assignment
from trek.engines.member_folder import MemberFolder
from trek.errors import InputError, MasterUnreachable, NotFound
from trek.experiments.control_plane_storage import ControlPlaneStorage
from trek.experiments.trial_process import TrialProcess
from trek.experiments.trial_storage_choice import open_trial_storage, resume_point, tell_storage
from trek.train.checkpointing.stores import MANIFEST, Storage
from trek.train.checkpointing.stores.folder import FolderStorage
from trek.train.checkpointing.stores.remote import RemoteStorage
from trek.world import World

THROUGH = "trek: checkpoints go through the control plane to its folder"


class OtherDisk:
    """A control plane's calls about checkpoints, with a folder as its disk; `num_outages` calls are not answered."""

    def __init__(self, folder: Path, *, num_outages: int = 0) -> None:
        self.folder = folder
        self.num_outages = num_outages
        self.num_downloads = 0

    def own_checkpoints(self, trial_id: int, *, run: int) -> list[str]:
        self._answer()
        return sorted(path.name for path in self.folder.iterdir())

    def store_checkpoint(self, trial_id: int, name: str, folder: Path, *, run: int) -> str:
        self._answer()
        return str(shutil.copytree(folder, self.folder / name))

    def fetch_own_checkpoint(
        self, trial_id: int, name: str | None, target: Path, *, run: int, only: str | None = None
    ) -> None:
        target.mkdir(parents=True)
        (target / "torn").touch()
        self._answer()
        (target / "torn").unlink()
        self.num_downloads += 1
        source = self.folder / (name or "start")
        if not source.is_dir():
            raise NotFound("none")
        for path in source.iterdir():
            if only in (None, path.name):
                shutil.copy(path, target)

    def _answer(self) -> None:
        if self.num_outages:
            self.num_outages -= 1
            raise MasterUnreachable("no answer")


def make_place(tmp_path: Path, *, shares_disk: bool = False) -> TrialProcess:
    member = MemberFolder(tmp_path)
    return TrialProcess(7, 1, tmp_path, member, Address("http://test"), None, shares_disk=shares_disk)


def make_storage(tmp_path: Path, *, num_outages: int = 0, patience_s: float = 60.0) -> ControlPlaneStorage:
    disk = tmp_path / "disk"
    disk.mkdir(exist_ok=True)
    client = OtherDisk(disk, num_outages=num_outages)
    return ControlPlaneStorage(client, place=make_place(tmp_path), address=str(disk), patience_s=patience_s)  # type: ignore[arg-type]


def publish(storage: Storage, name: str) -> str:
    workspace = storage.workspace()
    (workspace / "weights").write_bytes(name.encode())
    (workspace / MANIFEST).write_text("{}")
    address = storage.publish(workspace, name)
    shutil.rmtree(workspace, ignore_errors=True)  # a folder was moved
    return address


@pytest.mark.parametrize("num_outages", [0, 1])
def test_what_is_published_is_listed_and_fetched_also_after_an_outage(tmp_path: Path, num_outages: int) -> None:
    storage = make_storage(tmp_path, num_outages=num_outages)
    assert publish(storage, "b") == str(tmp_path / "disk" / "b")
    publish(storage, "a")
    assert storage.names() == ["a", "b"]
    storage._client.num_outages = num_outages  # type: ignore[attr-defined]
    assert [path.name for path in storage.fetch("b", only=MANIFEST).iterdir()] == [MANIFEST]
    folder = storage.fetch("b")
    assert (folder.name, (folder / "weights").read_bytes()) == ("b", b"b")
    assert {path.name for path in folder.iterdir()} == {"weights", MANIFEST}
    assert storage.fetch("b", only=MANIFEST) == storage.fetch("b") == folder
    assert storage._client.num_downloads == 2  # type: ignore[attr-defined]


def test_what_is_not_there_and_what_a_trial_may_not_do(tmp_path: Path) -> None:
    storage = make_storage(tmp_path)
    with pytest.raises(FileNotFoundError):
        storage.fetch("none")
    with pytest.raises(InputError, match="the control plane decides"):
        storage.delete("none")


def test_a_control_plane_that_never_answers_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MasterUnreachable):
        publish(make_storage(tmp_path, num_outages=10, patience_s=0.0), "a")


def make_assignment(
    checkpoint_dir: str, *, resume: str | None = None, run: int = 1, checkpoints: list[str] | None = None
) -> Assignment:
    return Assignment(
        trial_id=7, experiment_id=1, run=run, config={}, hparams={}, seed=0, length={"batches": 1}, archive="",
        name="x", checkpoint_dir=checkpoint_dir, resume=resume, checkpoints=checkpoints,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("address", "shares_disk", "kind", "told"),
    [
        ("/folder", True, FolderStorage, ""),
        ("memory://runs/7", False, RemoteStorage, "trek: checkpoints go to memory://runs/7\n"),
        (
            "/folder",
            False,
            ControlPlaneStorage,
            f"{THROUGH} /folder\n",
        ),
    ],
)
def test_the_way_of_checkpoints_follows_from_disk_and_address_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str, shares_disk: bool, kind: type, told: str
) -> None:
    place = make_place(tmp_path, shares_disk=shares_disk)
    storage = open_trial_storage(make_assignment(address), place=place, client=OtherDisk(tmp_path))  # type: ignore[arg-type]
    assert type(storage) is kind
    for rank in range(2):
        tell_storage(storage, world=World(rank=rank, size=2))
    assert capsys.readouterr().out == told


def test_a_trial_starts_from_the_copy_that_the_control_plane_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = make_storage(tmp_path)
    assert resume_point(make_assignment("/folder"), storage) == "latest"
    start = tmp_path / "disk" / "start"
    start.mkdir()
    (start / "weights").write_bytes(b"start")
    monkeypatch.setattr(storage, "names", list)
    found = resume_point(make_assignment("/folder", resume="/folder/start"), storage)
    assert (Path(found) / "weights").read_bytes() == b"start"


@pytest.mark.parametrize("shares_disk", [True, False])
def test_a_run_does_not_see_what_an_earlier_one_could_not_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shares_disk: bool
) -> None:
    disk = make_storage(tmp_path)
    publish(disk, "batch-32")
    publish(disk, "batch-40")
    assignment = make_assignment(disk.address, run=2, checkpoints=["batch-32"], resume=f"{disk.address}/batch-32")
    place = make_place(tmp_path, shares_disk=shares_disk)
    storage = open_trial_storage(assignment, place=place, client=disk._client)
    assert storage.names() == ["batch-32"]
    assert resume_point(assignment, storage) == "latest"
    publish(storage, "batch-48")
    assert storage.names() == ["batch-32", "batch-48"]
    assert (storage.fetch("batch-48") / "weights").read_bytes() == b"batch-48"
    tell_storage(storage, world=World(rank=0, size=1))
    assert capsys.readouterr().out == ("" if shares_disk else f"{THROUGH} {disk.address}\n")


def test_a_run_of_which_nothing_was_reported_starts_where_the_trial_does(tmp_path: Path) -> None:
    disk = make_storage(tmp_path)
    publish(disk, "batch-40")
    publish(disk, "start")
    assignment = make_assignment(disk.address, run=2, checkpoints=[], resume="/folder/start")
    storage = open_trial_storage(assignment, place=make_place(tmp_path), client=disk._client)
    assert (Path(resume_point(assignment, storage)) / "weights").read_bytes() == b"start"
