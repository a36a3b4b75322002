"""The code that an experiment ran, file by file, out of its archive."""

from __future__ import annotations

from trek.client.view_models import CodeFile, CodeText
from trek.control.experiments.archives import Archives
from trek.control.lookup import find_experiment
from trek.control.store import Store
from trek.errors import NotFound
from trek.experiments.package import MAX_BYTES, MAX_FILES
from trek.experiments.tar_members import CHUNK_BYTES, open_archive

MAX_SHOWN_BYTES = 2**20


class CodeBrowser:
    """Reads archives in memory; nothing of them is written to the disk or run."""

    def __init__(self, store: Store, *, archives: Archives) -> None:
        self._store = store
        self._archives = archives

    def files(self, experiment_id: int) -> list[CodeFile]:
        """The files by path."""
        with open_archive(self._data(experiment_id), max_bytes=MAX_BYTES, max_members=MAX_FILES) as members:
            found = [CodeFile(path=member.name, num_bytes=member.size) for member, _ in members if member.isfile()]
        return sorted(found, key=lambda one: one.path)

    def file(self, experiment_id: int, path: str) -> CodeText:
        """One file; its text is empty where it cannot be shown."""
        with open_archive(self._data(experiment_id), max_bytes=MAX_BYTES, max_members=MAX_FILES) as members:
            for member, content in members:
                if member.name == path and content is not None:
                    return _shown(path, b"".join(iter(lambda: content.read(CHUNK_BYTES), b"")))  # noqa: B023 - read here
        raise NotFound(f"experiment {experiment_id} has no file {path!r}.")

    def _data(self, experiment_id: int) -> bytes:
        with self._store.reading() as session:
            archive = find_experiment(session, experiment_id).archive
        return self._archives.get(archive)


def _shown(path: str, data: bytes) -> CodeText:
    try:
        text = data.decode() if len(data) <= MAX_SHOWN_BYTES and b"\0" not in data else None
    except UnicodeDecodeError:
        text = None
    return CodeText(path=path, num_bytes=len(data), text=text or "", is_text=text is not None)
