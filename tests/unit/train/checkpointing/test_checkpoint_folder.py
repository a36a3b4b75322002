"""Checkpoints appear whole or not at all, say when they are damaged, and hold nothing that runs."""

from __future__ import annotations

import errno
import json
import logging
import pickletools
import resource
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from torch import nn

import trek
from trek.errors import CheckpointError, ConfigError, InputError, StorageError
from trek.fingerprints import fingerprint
from trek.testing.trials import PointsTrial
from trek.train.callbacks.callback import Callback
from trek.train.checkpointing.checkpoint_folder import Snapshot, find_latest
from trek.train.checkpointing.checkpoint_writer import CheckpointWriter
from trek.train.checkpointing.keeping import KeepPolicy, KeptCheckpoint
from trek.train.checkpointing.manifest import checksum
from trek.train.checkpointing.stores import MANIFEST, open_storage
from trek.train.checkpointing.stores.folder import FolderStorage
from trek.train.checkpointing.stores.remote import RemoteStorage
from trek.train.folders import new_run_folder
from trek.train.loggers.base import CheckpointRow
from trek.train.result import Result

HPARAMS = {"global_batch_size": 8, "rows": 32}


def fit(*, resume: Any = None, hparams: dict[str, Any] | None = None, **settings: Any) -> Result:
    options: dict[str, Any] = {"name": "run", "max_length": trek.epochs(1), "checkpoint_period": trek.batches(1)}
    options |= {"keep_last": 9, "show_progress": False, **settings}
    return trek.fit(PointsTrial, hparams={**HPARAMS, **(hparams or {})}, resume=resume, **options)


def checkpoints(result: Result) -> list[Path]:
    """Of a run, the oldest first."""
    return sorted((result.path / "checkpoints").iterdir())


def state(value: float = 1.0, *, numbers: int = 1) -> Snapshot:
    return Snapshot([{"weight": torch.full((numbers,), value)}], {"steps": 3}, [{"random": torch.zeros(2)}])


def save(writer: CheckpointWriter, batches: int, *, score: float | None = None, numbers: int = 1) -> None:
    writer.save(state(batches, numbers=numbers), batches=batches, metrics={}, score=score)


# -- what is in one


def test_a_manifest_gives_every_files_size_and_checksum() -> None:
    folder = checkpoints(fit())[-1]
    files = trek.Checkpoint(folder).manifest["files"]
    assert set(files) == {path.name for path in folder.iterdir()} - {MANIFEST}
    assert {"model.safetensors", "state.json", "rank_0.json"} <= set(files)
    for name, facts in files.items():
        assert facts == {"bytes": (folder / name).stat().st_size, "sha256": checksum(folder / name)}


def test_a_checkpoint_counts_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    """It counted by its path, so that predictions of the checkpoint that was there before were served."""
    first, last = checkpoints(fit())[0], checkpoints(fit())[-1]
    shutil.copytree(first, tmp_path / "best")
    before = fingerprint(trek.Checkpoint(tmp_path / "best"))
    assert before == fingerprint(trek.Checkpoint(first))
    shutil.rmtree(tmp_path / "best")
    shutil.copytree(last, tmp_path / "best")
    assert fingerprint(trek.Checkpoint(tmp_path / "best")) != before


def test_nothing_in_a_checkpoint_is_a_pickle_or_an_archive_of_them() -> None:
    for path in checkpoints(fit())[-1].iterdir():
        content = path.read_bytes()
        assert path.suffix in (".json", ".safetensors")
        assert not zipfile.is_zipfile(path)
        with pytest.raises(ValueError):
            list(pickletools.genops(content))


def test_weights_that_share_memory_or_are_views_are_saved_whole(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    writer = CheckpointWriter(FolderStorage(tmp_path), policy=KeepPolicy())
    writer.save(Snapshot([{"a": weight, "b": weight, "c": weight.T}], {}, [{}]), batches=1, metrics={}, score=None)
    weight.zero_()  # a snapshot was taken: what happens to the model afterwards changes nothing
    writer.close()
    found = find_latest(FolderStorage(tmp_path))
    assert found is not None
    saved = found.state_dict()
    assert torch.equal(saved["a"], torch.arange(6.0).reshape(2, 3))
    assert torch.equal(saved["c"], saved["b"].T)


def test_an_object_in_a_state_dict_is_refused_by_name() -> None:
    class Strange(PointsTrial):
        def build_callbacks(self) -> Any:
            class Holder(Callback):
                def state_dict(self) -> dict[str, Any]:
                    return {"path": Path("x")}

            return {"holder": Holder()}

    with pytest.raises(InputError, match=r"callback_holder.*PosixPath"):
        trek.fit(Strange, hparams=HPARAMS, max_length=trek.batches(1), show_progress=False)


# -- damage


def tear(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def shorten(folder: Path) -> None:
    path = folder / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def flip(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def cut_manifest(folder: Path) -> None:
    path = folder / MANIFEST
    path.write_text(path.read_text()[:40])


def other_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("[]")


def drop_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


@pytest.mark.parametrize("damage", [tear, shorten, flip, cut_manifest, other_manifest, drop_manifest])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(damage: Any, caplog: pytest.LogCaptureFixture) -> None:
    first = fit(hparams={"stop_at": 3})
    whole, damaged = checkpoints(first)[-2:]
    damage(damaged)
    with caplog.at_level(logging.WARNING):
        resumed = fit(resume="latest")
    assert resumed.stop_reason == ""
    assert resumed.checkpoint is not None
    assert resumed.checkpoint.batches == 4
    assert [row["batches"] for row in resumed.metrics if row["group"] == "validation"] == [4]
    warned = [record.getMessage() for record in caplog.records if damaged.name in record.getMessage()]
    assert bool(warned) == (damage is not drop_manifest)  # without a manifest it never was there
    with pytest.raises(CheckpointError, match=damaged.name):
        fit(resume=damaged)
    trek.Checkpoint(whole).verify()


def test_a_checkpoint_of_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps({"format": 99}))
    with pytest.raises(CheckpointError, match="has format 99, but this version of Trek reads formats 1 to 2"):
        trek.Checkpoint(tmp_path)


@pytest.mark.parametrize("place", ["nowhere", "memory://nowhere/batch-1", "file:///nowhere"])
def test_a_place_without_a_checkpoint_is_named(place: str) -> None:
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        fit(resume=place)


def test_resume_latest_of_an_empty_run_starts_afresh() -> None:
    new_run_folder("run")  # the run was killed before its first checkpoint
    assert fit(resume="latest").checkpoint is not None


# -- places


@pytest.fixture
def bucket() -> Iterator[str]:
    """A place that fsspec reaches, gone afterwards."""
    files = fsspec.filesystem("memory")
    yield "memory://runs/7"
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def test_a_run_saves_to_a_url_and_resumes_from_it_to_the_bit(bucket: str) -> None:
    whole = fit(name="whole", hparams={"dropout": 0.5})
    fit(name="part", checkpoint_dir=bucket, hparams={"dropout": 0.5, "stop_at": 2})
    names = open_storage(bucket).names()
    assert names[-1].startswith("batch-0000000002-")
    resumed = fit(name="again", checkpoint_dir=bucket, resume="latest", hparams={"dropout": 0.5})
    named = fit(name="other", resume=f"{bucket}/{names[-1]}", hparams={"dropout": 0.5})
    for result in (resumed, named):
        assert result.checkpoint is not None
        assert whole.checkpoint is not None
        for name, weights in whole.checkpoint.state_dict().items():
            assert torch.equal(weights, result.checkpoint.state_dict()[name])


def test_a_remote_checkpoint_without_its_manifest_does_not_exist(bucket: str, tmp_path: Path) -> None:
    storage = open_storage(bucket)
    assert isinstance(storage, RemoteStorage)
    writer = CheckpointWriter(storage, policy=KeepPolicy(last=3))
    for batches in (1, 2):
        save(writer, batches)
    writer.close()
    assert len(storage.names()) == 2
    fsspec.filesystem("memory").rm_file(f"/runs/7/{storage.names()[-1]}/{MANIFEST}")
    found = find_latest(open_storage(bucket))
    assert found is not None
    assert found.batches == 1


@pytest.mark.parametrize("storage", ["folder", "remote"])
def test_deleting_what_is_gone_is_no_error(storage: str, tmp_path: Path, bucket: str) -> None:
    place = open_storage(tmp_path if storage == "folder" else bucket)
    writer = CheckpointWriter(place, policy=KeepPolicy())
    save(writer, 1)
    writer.close()
    (name,) = place.names()
    place.delete(name)
    place.delete(name)
    assert place.names() == []


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    trained = []

    class Watched(PointsTrial):
        def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
            trained.append(batch_idx)
            return super().train_batch(batch, model, batch_idx)

    with pytest.raises(
        StorageError,
        match=r"cannot write to .*file/inner: Not a directory\. There is a file at .*, where",
    ):
        trek.fit(
            Watched, hparams=HPARAMS, max_length=trek.batches(1), checkpoint_dir=tmp_path / "file" / "inner",
            show_progress=False,
        )  # fmt: skip
    assert trained == []


# -- writing that fails


@contextmanager
def files_no_larger_than(num_bytes: int) -> Iterator[None]:
    """The disk refuses to go on in the middle of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_refuses_in_the_middle_of_a_file_is_an_error_of_the_next_call_and_harms_no_other(
    tmp_path: Path,
) -> None:
    storage = FolderStorage(tmp_path)
    writer = CheckpointWriter(storage, policy=KeepPolicy())
    save(writer, 1)
    writer.wait()
    with files_no_larger_than(10_000):
        save(writer, 2, numbers=100_000)
        with pytest.raises(StorageError, match=f"cannot write to {tmp_path}: File too large"):
            save(writer, 3)
    writer.close()
    found = find_latest(storage)
    assert found is not None
    assert found.batches == 1
    found.verify()
    assert [path.name for path in tmp_path.iterdir()] == storage.names()  # nothing half written lies about


class FullStorage(FolderStorage):
    """A folder on a disk that is full from the second checkpoint on."""

    def publish(self, workspace: Path, name: str) -> str:
        if self.names():
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().publish(workspace, name)


def test_a_full_disk_says_so_and_earlier_checkpoints_stay(tmp_path: Path) -> None:
    writer = CheckpointWriter(FullStorage(tmp_path), policy=KeepPolicy())
    save(writer, 1)
    save(writer, 2)
    with pytest.raises(StorageError, match=f"no space left in {tmp_path}"):
        writer.close()
    found = find_latest(FolderStorage(tmp_path))
    assert found is not None
    assert found.batches == 1


def test_a_folder_that_vanishes_while_training_is_made_again(tmp_path: Path) -> None:
    writer = CheckpointWriter(FolderStorage(tmp_path / "a"), policy=KeepPolicy())
    (tmp_path / "a").rmdir()
    save(writer, 1)
    writer.close()
    assert len(FolderStorage(tmp_path / "a").names()) == 1


def test_a_failed_write_ends_the_run_with_its_error() -> None:
    class Stuffed(PointsTrial):
        def build_model(self) -> nn.Module:
            return nn.Sequential(super().build_model(), nn.Identity()).append(_Weight())

    with files_no_larger_than(100_000), pytest.raises(StorageError, match="File too large"):
        trek.fit(
            Stuffed, hparams=HPARAMS, max_length=trek.batches(9), checkpoint_period=trek.batches(1), show_progress=False
        )


class _Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.large = nn.Parameter(torch.zeros(100_000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.0 * self.large[0]


# -- which are kept


def test_a_writer_tells_what_was_written_and_what_was_let_go(tmp_path: Path) -> None:
    written: list[CheckpointRow] = []
    deleted: list[str] = []
    writer = CheckpointWriter(
        FolderStorage(tmp_path), policy=KeepPolicy(), on_written=written.append, on_deleted=deleted.append
    )
    for batches, score in [(1, 0.5), (2, 0.9), (3, None)]:
        save(writer, batches, score=score)
    writer.close()
    assert [row.batches for row in written] == [1, 2, 3]
    assert deleted == [written[1].uuid]  # 1 is the best, 3 the last
    assert (writer.best, writer.last) == tuple(Path(written[i].path).name for i in (0, 2))


def test_a_later_writer_goes_on_with_what_is_there(tmp_path: Path) -> None:
    first = CheckpointWriter(FolderStorage(tmp_path), policy=KeepPolicy())
    for batches, score in [(1, 0.1), (2, 0.3)]:
        save(first, batches, score=score)
    first.close()
    second = CheckpointWriter(FolderStorage(tmp_path), policy=KeepPolicy())
    save(second, 3, score=0.2)
    second.close()
    assert sorted(trek.Checkpoint(path).batches for path in tmp_path.iterdir()) == [1, 3]


KEPT = [
    KeptCheckpoint("a", 10, 0.3),
    KeptCheckpoint("b", 20, 0.1),
    KeptCheckpoint("c", 25, None),
    KeptCheckpoint("d", 30, 0.1),
    KeptCheckpoint("e", 35, 0.2),
]


@pytest.mark.parametrize(
    ("policy", "expired"),
    [
        (KeepPolicy(), ["a", "c", "d"]),  # of equals the earlier is the best
        (KeepPolicy(best=0), ["a", "b", "c", "d"]),
        (KeepPolicy(best=2, last=2), ["a", "c"]),
        (KeepPolicy(best=0, every=10), ["c"]),
        (KeepPolicy(best=9, last=1), ["c"]),
        (KeepPolicy(best=0, last=9), []),
    ],
)
def test_a_policy_keeps_the_best_the_last_and_every_so_many(policy: KeepPolicy, expired: list[str]) -> None:
    assert policy.expired(KEPT) == expired


@pytest.mark.parametrize("bad", [{"best": -1}, {"last": 0}, {"every": 0}])
def test_a_policy_that_cannot_be_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="keep policy"):
        KeepPolicy(**bad)


def test_a_run_keeps_every_so_many_batches() -> None:
    result = fit(keep_last=1, keep_best=0, keep_every=2)
    assert [trek.Checkpoint(path).batches for path in checkpoints(result)] == [2, 4]


class Refusing:
    """A store that wants an account, and says so in a way of its own."""

    def __getattr__(self, name: str) -> Any:
        raise LookupError("Unable to locate credentials")


def refuse(url: str) -> tuple[Any, str]:
    return Refusing(), "bucket"


def test_a_store_that_refuses_is_named_with_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(StorageError, match=r"cannot write to s3://bucket: .*credentials\. Check the URL"):
        open_storage("s3://bucket").prepare()
    with pytest.raises(CheckpointError, match=r"s3://bucket/one cannot be fetched: .*credentials\. Check the URL"):
        trek.Checkpoint("s3://bucket/one")


def test_a_url_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match=r"kept at 'nosuch://x': .*Use a folder, or the URL of a store"):
        open_storage("nosuch://x")
    with pytest.raises(InputError, match="'nosuch://x'"):
        trek.Checkpoint("nosuch://x/one")


def test_a_checkpoint_is_opened_by_its_url() -> None:
    fit = {"hparams": {"global_batch_size": 16}, "max_length": trek.batches(1), "show_progress": False}
    trek.fit(PointsTrial, checkpoint_dir="memory://opened", **fit)  # type: ignore[arg-type]
    (name,) = open_storage("memory://opened").names()
    assert trek.Checkpoint(f"memory://opened/{name}").batches == 1
