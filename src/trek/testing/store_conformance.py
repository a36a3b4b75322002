"""What every checkpoint Storage must do, as tests: subclass `StoreConformance` and give it a fixture named `address`.

class TestMyStore(StoreConformance):
    @pytest.fixture
    def address(self) -> str:
        return f"mystore://bucket/{uuid4()}"
"""

from __future__ import annotations

import shutil

import pytest

from trek.train.checkpointing.stores import MANIFEST, Storage, open_storage


class StoreConformance:
    """The contract of `trek.train.checkpointing.stores.base`, one promise a test."""

    @pytest.fixture
    def address(self) -> str:
        """Override: the folder or URL of an empty place that the Storage under test opens."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, address: str) -> Storage:
        """The Storage there, ready to be written."""
        store = open_storage(address)
        store.prepare()
        return store

    def test_an_empty_place_has_no_checkpoints(self, store: Storage) -> None:
        """prepare leaves nothing that looks like one."""
        assert store.names() == []

    def test_what_is_published_is_listed_and_fetched_as_it_was(self, store: Storage) -> None:
        """publish, names, fetch."""
        _publish(store, "b", {"weights": b"\0\1\2", "empty": b""})
        _publish(store, "a", {"weights": b"a"})
        assert store.names() == ["a", "b"]
        folder = store.fetch("b")
        assert folder.name == "b"
        assert {path.name for path in folder.iterdir()} >= {"weights", "empty", MANIFEST}
        assert (folder / "weights").read_bytes() == b"\0\1\2"
        assert (folder / "empty").read_bytes() == b""

    def test_one_file_can_be_fetched_before_the_others(self, store: Storage) -> None:
        """fetch(only=…), then all of it."""
        _publish(store, "a", {"weights": b"w"})
        assert (store.fetch("a", only=MANIFEST) / MANIFEST).read_bytes() == b"{}"
        assert (store.fetch("a") / "weights").read_bytes() == b"w"

    def test_the_address_of_a_checkpoint_opens_it(self, store: Storage) -> None:
        """What publish gives is an address: its parent a Storage, its last part the name."""
        place, _, name = _publish(store, "a", {"weights": b"w"}).rpartition("/")
        assert (open_storage(place).fetch(name) / "weights").read_bytes() == b"w"

    def test_what_is_being_written_is_not_listed(self, store: Storage, address: str) -> None:
        """A workspace is not a checkpoint, even with a manifest in it."""
        workspace = store.workspace()
        (workspace / MANIFEST).write_bytes(b"{}")
        assert store.names() == []
        shutil.rmtree(workspace)

    def test_a_checkpoint_without_a_manifest_is_not_listed(self, store: Storage) -> None:
        """The manifest is what makes it whole."""
        workspace = store.workspace()
        (workspace / "weights").write_bytes(b"w")
        store.publish(workspace, "torn")
        shutil.rmtree(workspace, ignore_errors=True)
        assert store.names() == []

    def test_deleting_removes_one_and_may_be_repeated(self, store: Storage) -> None:
        """delete."""
        for name in ("a", "b"):
            _publish(store, name, {"weights": name.encode()})
        store.delete("a")
        store.delete("a")
        assert store.names() == ["b"]
        assert (store.fetch("b") / "weights").read_bytes() == b"b"

    def test_removing_what_is_unfinished_keeps_what_is_finished(self, store: Storage) -> None:
        """remove_unfinished, also where there is nothing at all."""
        store.remove_unfinished()
        _publish(store, "a", {"weights": b"w"})
        workspace = store.workspace()  # of a process that was killed
        store.remove_unfinished()
        assert store.names() == ["a"]
        assert (store.fetch("a") / "weights").read_bytes() == b"w"
        shutil.rmtree(workspace, ignore_errors=True)

    def test_what_another_process_published_is_seen_after_a_refresh(self, store: Storage, address: str) -> None:
        """refresh."""
        other = open_storage(address)
        assert other.names() == []
        _publish(store, "a", {"weights": b"w"})
        other.refresh()
        assert other.names() == ["a"]


def _publish(store: Storage, name: str, files: dict[str, bytes]) -> str:
    workspace = store.workspace()
    assert not list(workspace.iterdir()), "a workspace is empty at first"
    for file, content in {**files, MANIFEST: b"{}"}.items():
        (workspace / file).write_bytes(content)
    address = store.publish(workspace, name)
    shutil.rmtree(workspace, ignore_errors=True)
    return address
