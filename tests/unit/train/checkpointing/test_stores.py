"""Every store keeps the contract, and one of another package is found by its scheme."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from trek.errors import InputError
from trek.testing.plugins import plugin_package
from trek.testing.store_conformance import StoreConformance
from trek.train.checkpointing.stores import MANIFEST, STORES, Storage, open_storage
from trek.train.checkpointing.stores.folder import FolderStorage


class TestAFolder(StoreConformance):
    """A path."""

    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return str(tmp_path / "checkpoints")


class TestAFileUrl(StoreConformance):
    """The same by URL."""

    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/checkpoints"


class TestFsspec(StoreConformance):
    """A store behind fsspec."""

    @pytest.fixture
    def address(self) -> str:
        return f"memory://{uuid4()}"


SOURCE = """
from pathlib import Path
from trek.train.checkpointing.stores.folder import FolderStorage


class AtticStorage(FolderStorage):
    @classmethod
    def open(cls, address):
        store = cls(Path(address.removeprefix("attic://")))
        store.address = address
        return store

    def publish(self, workspace, name):
        super().publish(workspace, name)
        return f"{self.address}/{name}"
"""


class TestAPlugin(StoreConformance):
    """A store of another package, found by the scheme of its URLs."""

    @pytest.fixture
    def address(self, tmp_path: Path) -> Iterator[str]:
        points = {"trek.stores": {"attic": "attic_store:AtticStorage"}}
        with plugin_package(
            tmp_path / "package", module="attic_store", source=SOURCE, entry_points=points, refresh=STORES
        ):
            yield f"attic://{tmp_path}/kept"


class Hasty(FolderStorage):
    """Lists everything, whole or not, and gives an address that is not the checkpoint's."""

    def publish(self, workspace: Path, name: str) -> str:
        shutil.copytree(workspace, self.folder / name)
        return str(self.folder)

    def names(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]


@pytest.mark.parametrize(
    "test",
    [
        "test_the_address_of_a_checkpoint_opens_it",
        "test_what_is_being_written_is_not_listed",
        "test_a_checkpoint_without_a_manifest_is_not_listed",
    ],
)
def test_a_store_that_breaks_the_contract_fails_the_suite(test: str, tmp_path: Path) -> None:
    store: Storage = Hasty(tmp_path / "kept")
    store.prepare()
    arguments = {"address": store.address} if test == "test_what_is_being_written_is_not_listed" else {}
    with pytest.raises((AssertionError, FileNotFoundError)):
        getattr(StoreConformance(), test)(store, **arguments)


def test_what_a_killed_process_left_in_a_folder_is_removed(tmp_path: Path) -> None:
    store = open_storage(tmp_path / "kept")
    (store.workspace() / "weights").write_bytes(b"w")
    (tmp_path / "kept" / ".deleting-a").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "kept" / ".writing-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "kept" / "another's").mkdir()
    store.remove_unfinished()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["another's"]
    assert (tmp_path / "elsewhere").is_dir(), "links are not followed"


def test_what_a_killed_process_left_behind_a_url_is_removed(tmp_path: Path) -> None:
    store = open_storage(f"local://{tmp_path}/kept")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "weights").write_bytes(b"w")
    store.publish(workspace, "torn")
    (workspace / MANIFEST).write_bytes(b"{}")
    store.publish(workspace, "whole")
    store.remove_unfinished()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["whole"]


def test_a_scheme_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match="nowhere"):
        open_storage("nowhere://bucket")
