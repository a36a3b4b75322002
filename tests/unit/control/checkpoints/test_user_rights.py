"""With --run-as, nothing of a trial's storage is touched with more rights than those of the trial's user."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest

from trek.client import models
from trek.client.tar_stream import tar_stream
from trek.control.checkpoints.checkpoint_files import find_checkpoints, remove_unfinished
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.file_rights import rights_of
from trek.control.layout import Layout
from trek.control.run_as import RunAs
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import CheckpointTable, ExperimentRow, TrialRow
from trek.control.trials.start_checkpoints import StartCheckpoints, copy_checkpoint
from trek.control.trials.trial_user import make_folders
from trek.errors import InputError, StorageError, TrekError
from trek.experiments.package import pack
from trek.system.clock import SystemClock
from trek.testing.control_parts import open_store
from trek.testing.trial_runner import IdleRunner
from trek.train.checkpointing.manifest import checksum, write_manifest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users")
USER = RunAs("nobody")
CONFIG: dict[str, Any] = {
    "name": "x",
    "entrypoint": "python run.py",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can pass through, as pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="trek-rights-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def layout(open_folder: Path) -> Layout:
    return Layout(open_folder / "home", run_as=USER)


@pytest.fixture
def store(layout: Layout) -> Iterator[Store]:
    made = open_store(layout.home)
    yield made
    made.close()


@pytest.fixture
def services(store: Store, layout: Layout) -> Services:
    return Services.over(store, layout=layout, runner=IdleRunner(), clock=SystemClock())


@pytest.fixture
def closed(open_folder: Path) -> Iterator[Path]:
    """A folder that only root can enter, with a checkpoint of the trial; nothing in it changes."""
    folder = open_folder / "closed"
    write_checkpoint(folder / "experiment_1/trial_1-own/one")
    (folder / "experiment_1/trial_1-own/.writing-1").mkdir()
    folder.chmod(0o700)
    before = _everything(folder)
    yield folder
    assert _everything(folder) == before


def _everything(folder: Path) -> list[tuple[Any, ...]]:
    facts = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
    return [(path, one.st_mode, one.st_uid, one.st_size, one.st_mtime_ns) for path, one in facts]


def write_checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True)
    parts = {"state.json": b"{}", "state.safetensors": b"\0" * 5000}
    for name, content in parts.items():
        (folder / name).write_bytes(content)
    files = {name: {"bytes": len(content), "sha256": checksum(folder / name)} for name, content in parts.items()}
    write_manifest(
        folder,
        {"uuid": "u", "owner": "own", "batches": 4, "metrics": {}, "world_size": 0, "files": files, "time_s": 1.0},
    )
    return folder


def run_trial(store: Store, layout: Layout, **config: Any) -> TrialRow:
    """Trial 1 of experiment 1, whose run 1 is running."""
    row = {"hparams": {}, "seed": 0, "length": 1, "created_s": 1.0, "state": "running", "run": 1, "uuid": "own"}
    with store.writing() as session:
        session.add(ExperimentRow(id=1, name="x", config={**CONFIG, **config}, archive="", created_s=1.0))
        session.flush()
        session.add(TrialRow(id=1, experiment_id=1, key=0, **row))
        session.flush()
        trial = session.get_one(TrialRow, 1)
    make_folders(layout, trial, user=USER.user_of(""))
    return trial


class SwappingTar(io.BytesIO):
    """The tar of a checkpoint; `swap` is called when the first file has arrived."""

    def __init__(self, folder: Path, swap: Callable[[], None]) -> None:
        super().__init__(b"".join(tar_stream(folder)))
        self._swap = swap

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() >= 4096:
            self._swap()
        return super().read(min(size or 0, 2048) if size and size > 0 else size)


def test_a_workspace_that_becomes_a_link_leads_root_nowhere(
    store: Store, services: Services, layout: Layout, open_folder: Path, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a trial sent a checkpoint, it put a link in place of the workspace: root wrote what it sent elsewhere."""
    trial = run_trial(store, layout)
    own = layout.trial(trial) / "checkpoints"
    monkeypatch.setattr("trek.control.checkpoints.trial_checkpoints._BUFFER", 512)

    def swap() -> None:
        for workspace in own.glob(".writing-*"):
            if not workspace.is_symlink():
                workspace.rename(own / "moved")
                workspace.symlink_to(closed)

    tar = SwappingTar(write_checkpoint(open_folder / "sent"), swap)
    with pytest.raises((StorageError, InputError)):
        services.trial_checkpoints.receive(1, "one", cast("IO[bytes]", tar), run=1)
    assert (own / "moved").is_dir(), "it was swapped"


def test_what_is_received_belongs_to_the_user_and_comes_back(
    store: Store, services: Services, layout: Layout, open_folder: Path
) -> None:
    trial = run_trial(store, layout)
    sent = write_checkpoint(open_folder / "sent")
    tar = b"".join(tar_stream(sent))
    services.trial_checkpoints.receive(1, "one", io.BytesIO(tar), run=1)
    stored = layout.trial(trial) / "checkpoints" / "one"
    assert {path.stat().st_uid for path in (stored, *stored.iterdir())} == {USER.user_of("").uid}
    assert services.trial_checkpoints.names(1, run=1) == ["one"]
    with services.trial_checkpoints.folder(1, "one", run=1) as folder:
        assert b"".join(folder.tar()) == tar


def test_a_file_that_grows_behind_the_masters_back_is_not_read_to_its_end(
    store: Store, services: Services, layout: Layout, open_folder: Path
) -> None:
    trial = run_trial(store, layout)
    own = layout.trial(trial) / "checkpoints"

    def grow() -> None:
        for path in own.glob(".writing-*/state.json"):
            os.truncate(path, 2**42)

    tar = SwappingTar(write_checkpoint(open_folder / "sent"), grow)
    with pytest.raises(InputError, match=r"state\.json is missing or has the wrong size"):
        services.trial_checkpoints.receive(1, "one", cast("IO[bytes]", tar), run=1)
    assert list(own.iterdir()) == []


def test_a_storage_that_only_root_can_enter_is_neither_read_nor_changed(
    store: Store, services: Services, layout: Layout, open_folder: Path, closed: Path
) -> None:
    """`checkpoint_storage.path` named a folder that the trial's user cannot enter, and root made folders in it."""
    run_trial(store, layout, checkpoint_storage={"path": str(closed)})
    address = f"{closed}/experiment_1/trial_1-own/one"
    with store.writing() as session:
        session.add(CheckpointTable(uuid="u", trial_id=1, batches=4, path=address, num_bytes=1, metrics={}, time_s=1.0))
    sent = b"".join(tar_stream(write_checkpoint(open_folder / "sent")))
    with pytest.raises(StorageError, match="Permission denied"):
        services.trial_checkpoints.receive(1, "two", io.BytesIO(sent), run=1)
    for ask in (
        lambda: services.trial_checkpoints.names(1, run=1),
        lambda: services.trial_checkpoints.folder(1, "one", run=1).__enter__(),
        lambda: services.checkpoints.folder("u").__enter__(),
    ):
        with pytest.raises((TrekError, PermissionError)):
            ask()
    with store.writing() as session:
        session.get_one(TrialRow, 1).state = "completed"
        session.get_one(ExperimentRow, 1).state = "completed"
    services.checkpoints.delete("u")
    services.experiments.delete(1)


def test_links_below_a_storage_lead_no_further_than_the_user(open_folder: Path, closed: Path) -> None:
    (open_folder / "storage").mkdir()
    (open_folder / "storage" / "experiment_1").symlink_to(closed / "experiment_1")
    storage = TrialStorage(
        root=str(open_folder / "storage"), inner="experiment_1/trial_1-own", rights=lambda: rights_of(USER.user_of(""))
    )
    assert find_checkpoints(storage, owner="own") is None
    remove_unfinished(storage)
    storage.remove_all()


def test_a_copy_to_start_from_holds_no_file_that_the_user_cannot_read(
    store: Store, layout: Layout, open_folder: Path, closed: Path
) -> None:
    """The copy followed links: root linked the files they led to into the trial's folder, and gave them to its user."""
    parent = layout.trial(run_trial(store, layout)) / "checkpoints" / "one"
    user = USER.user_of("")
    with rights_of(user):
        write_checkpoint(parent)
        (parent / "link").symlink_to(closed / "experiment_1/trial_1-own/one/state.json")
        (parent / "folder").symlink_to(closed)
        os.mkfifo(parent / "pipe")
    made = copy_checkpoint(str(parent), open_folder / "start", user=user)
    assert sorted(one.name for one in made.iterdir()) == ["manifest.json", "state.json", "state.safetensors"]
    assert {one.stat().st_uid for one in (made, *made.iterdir())} == {user.uid}
    with pytest.raises(PermissionError):
        copy_checkpoint(str(closed / "experiment_1/trial_1-own/one"), open_folder / "other", user=user)


def test_a_trial_that_starts_from_another_gets_a_copy_of_its_own(store: Store, layout: Layout) -> None:
    source = layout.trial(run_trial(store, layout)) / "checkpoints" / "one"
    with rights_of(USER.user_of("")):
        write_checkpoint(source)
    with store.writing() as session:
        session.add(
            CheckpointTable(uuid="u", trial_id=1, batches=4, path=str(source), num_bytes=1, metrics={}, time_s=1.0)
        )
        session.flush()
        session.get_one(TrialRow, 1).checkpoint = "u"
        row = {"hparams": {}, "seed": 0, "length": 1, "created_s": 1.0, "state": "queued", "uuid": "two"}
        session.add(TrialRow(id=2, experiment_id=1, key=1, parent_key=0, **row))
    assert StartCheckpoints(store, layout=layout, clock=SystemClock()).copy_missing() == {}
    with store.reading() as session:
        made = Path(session.get_one(TrialRow, 2).start_checkpoint or "")
    assert {one.stat().st_uid for one in (made, *made.iterdir())} == {USER.user_of("").uid}


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("local:///root/x", True),
        ("simplecache://x::s3://bucket/x", True),
        ("zip://x::file:///root/a.zip", True),
        ("sftp://localhost/root", True),
        ("s3://bucket/x", False),
        ("memory://x", False),
        ("file:///somewhere", False),
    ],
)
def test_a_url_through_which_root_would_touch_files_here_is_refused(
    services: Services, open_folder: Path, url: str, is_refused: bool
) -> None:
    (open_folder / "model").mkdir()
    package = pack(open_folder / "model")
    services.archives.put(package.data, sha256=package.sha256)
    request = models.CreateExperiment(config={**CONFIG, "checkpoint_storage": {"url": url}}, archive=package.sha256)
    if is_refused:
        with pytest.raises(InputError, match="may lead to files of this machine"):
            services.experiments.create(request)
    else:
        services.experiments.create(request)


def test_a_tar_is_read_with_the_rights_whichever_thread_asks_for_the_next_part(
    store: Store, services: Services, layout: Layout, open_folder: Path, closed: Path
) -> None:
    trial = run_trial(store, layout)
    folder = layout.trial(trial) / "checkpoints" / "one"
    with rights_of(USER.user_of("")):
        write_checkpoint(folder)
    os.chown(folder / "state.json", 0, 0)
    (folder / "state.json").chmod(0o600)
    with services.trial_checkpoints.folder(1, "one", run=1) as lent:
        sent = io.BytesIO(b"".join(lent.tar()))
    with tarfile.open(fileobj=sent) as tar:
        assert tar.getnames() == ["manifest.json", "state.safetensors"], "not the file of root"
