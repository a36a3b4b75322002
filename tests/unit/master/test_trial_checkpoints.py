"""Checkpoints of a trial over HTTP: stored whole or not at all, by its own running run, and fetched as they were."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from trek.client.tar_stream import tar_stream
from trek.control.store import Store
from trek.control.tables import ExperimentRow, TrialRow
from trek.train.checkpointing.manifest import checksum, write_manifest

pytestmark = pytest.mark.anyio

CONFIG = {
    "entrypoint": "model_def:Model",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
    "hyperparameters": {"global_batch_size": 1},
}
URL = "/api/v1/trials/1/checkpoints"


@pytest.fixture
def stored(store: Store, tmp_path: Path) -> Path:
    """The folder with the stored checkpoints of trial 1, whose run 3 is running."""
    row = {"hparams": {}, "seed": 0, "length": 1, "created_s": 1.0, "state": "running", "run": 3, "uuid": "own"}
    with store.writing() as session:
        session.add(ExperimentRow(id=1, name="x", config=CONFIG, archive="", created_s=1.0))
        session.flush()
        trial = TrialRow(id=1, experiment_id=1, key=0, **row)
        session.add(trial)
        session.flush()
        return tmp_path / "trials" / trial.folder_name / "checkpoints"


def write_checkpoint(folder: Path, *, owner: str = "own", weights: bytes = b"\0\1\2" * 1000) -> Path:
    folder.mkdir(parents=True)
    parts = {"state.json": b"{}", "state.safetensors": weights, "rank_0.json": b"{}", "rank_0.safetensors": b""}
    for name, content in parts.items():
        (folder / name).write_bytes(content)
    files = {name: {"bytes": len(content), "sha256": checksum(folder / name)} for name, content in parts.items()}
    entries = {"uuid": "u", "owner": owner, "batches": 4, "metrics": {}, "world_size": 1, "files": files}
    write_manifest(folder, entries)
    return folder


async def put(ask: Any, tar: bytes | AsyncIterator[bytes], *, name: str = "a", run: int = 3) -> Any:
    return await ask("PUT", f"{URL}/{name}", params={"run": run}, content=tar)


def left(stored: Path) -> list[str]:
    return [path.name for path in stored.iterdir()] if stored.exists() else []


def tar_of(folder: Path) -> bytes:
    return b"".join(tar_stream(folder))


async def parts_of(tar: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(tar), 700):
        yield tar[start : start + 700]


async def test_what_is_stored_comes_back_as_it_was(ask: Any, stored: Path, tmp_path: Path) -> None:
    sent = write_checkpoint(tmp_path / "sent")
    reply = await put(ask, parts_of(tar_of(sent)))
    assert reply.json() == {"path": str(stored / "a")}
    assert (await ask("GET", URL, params={"run": 3})).json() == ["a"]
    back = await ask("GET", f"{URL}/a/files", params={"run": 3})
    assert back.content == tar_of(sent)
    manifest = await ask("GET", f"{URL}/a/files", params={"run": 3, "only": "manifest.json"})
    with tarfile.open(fileobj=io.BytesIO(manifest.content)) as tar:
        assert [Path(name).name for name in tar.getnames()] == ["manifest.json"]
    assert left(stored) == ["a"]


async def test_the_same_checkpoint_may_be_sent_again_and_another_not(ask: Any, stored: Path, tmp_path: Path) -> None:
    sent = tar_of(write_checkpoint(tmp_path / "sent"))
    other = tar_of(write_checkpoint(tmp_path / "other", weights=b"other"))
    assert [(await put(ask, tar)).status_code for tar in (sent, sent, other)] == [200, 200, 400]
    assert (stored / "a" / "state.safetensors").read_bytes() == b"\0\1\2" * 1000
    assert left(stored) == ["a"]


def _cut(folder: Path) -> bytes:
    return tar_of(folder)[:4000]


def _changed(folder: Path) -> bytes:
    (folder / "state.safetensors").write_bytes(b"\0\1\3" * 1000)
    return tar_of(folder)


def _shorter(folder: Path) -> bytes:
    (folder / "state.safetensors").write_bytes(b"\0\1\2")
    return tar_of(folder)


def _missing(folder: Path) -> bytes:
    (folder / "rank_0.json").unlink()
    return tar_of(folder)


def _without_manifest(folder: Path) -> bytes:
    (folder / "manifest.json").unlink()
    return tar_of(folder)


def _more(folder: Path) -> bytes:
    (folder / "extra.pkl").write_bytes(b"x")
    return tar_of(folder)


def _in_a_folder(folder: Path) -> bytes:
    (folder / "inner").mkdir()
    (folder / "inner" / "state.json").write_bytes(b"{}")
    return tar_of(folder)


def _elsewhere(folder: Path) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.add(folder / "manifest.json", arcname="../manifest.json")
    return made.getvalue()


def _link(folder: Path) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        link = tarfile.TarInfo("state.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return made.getvalue()


def _damaged_manifest(folder: Path) -> bytes:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "batches": 5}))
    return tar_of(folder)


BROKEN = [
    _cut,
    _changed,
    _shorter,
    _missing,
    _without_manifest,
    _more,
    _in_a_folder,
    _elsewhere,
    _link,
    _damaged_manifest,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.__name__.strip("_"))
async def test_a_broken_upload_leaves_nothing(
    ask: Any, stored: Path, tmp_path: Path, broken: Callable[[Path], bytes]
) -> None:
    before = {path for path in tmp_path.rglob("*") if "sent" not in path.parts}
    tar = broken(write_checkpoint(tmp_path / "sent"))
    reply = await put(ask, tar)
    assert reply.status_code == 400, reply.text
    assert left(stored) == []
    after = {path for path in tmp_path.rglob("*") if not {"sent", "trials"} & set(path.parts)}
    assert {path.name for path in after - before} <= {"trek.db-wal", "trek.db-shm"}


async def test_an_upload_whose_sender_is_lost_leaves_nothing(ask: Any, stored: Path, tmp_path: Path) -> None:
    tar = tar_of(write_checkpoint(tmp_path / "sent"))

    async def torn() -> AsyncIterator[bytes]:
        yield tar[:3000]
        raise ConnectionResetError("the sender was killed")

    with pytest.raises(ConnectionResetError):
        await put(ask, torn())
    assert left(stored) == []


async def test_only_the_run_that_is_running_stores_its_own_checkpoints(
    ask: Any, stored: Path, store: Store, tmp_path: Path
) -> None:
    own = tar_of(write_checkpoint(tmp_path / "own"))
    foreign = tar_of(write_checkpoint(tmp_path / "foreign", owner="other"))
    assert (await put(ask, foreign)).status_code == 400
    assert (await put(ask, own, run=2)).status_code >= 400
    assert (await put(ask, own, name="..")).status_code >= 400
    assert (await put(ask, own, name=".a")).status_code == 400
    assert (await put(ask, own)).status_code == 200
    with store.writing() as session:
        session.get_one(TrialRow, 1).state = "completed"
    for path in (URL, f"{URL}/a/files", "/api/v1/trials/1/start-checkpoint/files"):
        assert (await ask("GET", path, params={"run": 3})).json()["kind"] == "RunEnded"
    assert left(stored) == ["a"]


async def test_the_checkpoint_that_a_trial_starts_from_can_be_fetched(
    ask: Any, stored: Path, store: Store, tmp_path: Path
) -> None:
    url = "/api/v1/trials/1/start-checkpoint/files"
    assert (await ask("GET", url, params={"run": 3})).status_code == 404
    start = write_checkpoint(tmp_path / "start", owner="parent")
    with store.writing() as session:
        session.get_one(TrialRow, 1).start_checkpoint = str(start)
    assert (await ask("GET", url, params={"run": 3})).content == tar_of(start)
    assert (await ask("GET", f"{URL}/none/files", params={"run": 3})).status_code == 404
