"""Journals: what was written completely comes back, and nothing else, whatever is behind it in the file."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import numpy as np
import pytest

from trek.errors import OutsideError
from trek.ps.journal import Journal
from trek.ps.journal_file import JournalFile
from trek.ps.protocol import messages as pb
from trek.ps.protocol.frames import NO_BODY
from trek.ps.protocol.tensors import Bytes

Request = tuple[str, bytes]


def append(journal: JournalFile | Journal, text: str, body: bytes) -> None:
    request = pb.Envelope(progress=pb.ProgressRequest(prefix=text))
    journal.append(request, np.frombuffer(bytearray(body), np.uint8) if body else NO_BODY)


def requests_of(journal: JournalFile | Journal) -> list[Request]:
    found: list[Request] = []

    def take(request: pb.Envelope, body: Bytes) -> None:
        found.append((request.progress.prefix, body.tobytes()))

    assert journal.replay(take) == len(found)
    return found


def some_requests(rng: random.Random, count: int) -> list[Request]:
    return [(f"request {rng.random()}", rng.randbytes(rng.choice([0, 1, 8, 37, 3000]))) for _ in range(count)]


def written(path: Path, requests: list[Request], *, number: int = 3) -> list[int]:
    """Write a journal; where each request ends."""
    journal, ends = JournalFile(path, number=number), []
    requests_of(journal)
    for one in requests:
        append(journal, *one)
        ends.append(journal.num_bytes)
    journal.close()
    return ends


def read(path: Path, *, number: int = 3) -> list[Request]:
    journal = JournalFile(path, number=number)
    found = requests_of(journal)
    journal.close()
    return found


def test_what_was_written_comes_back_and_more_can_follow(tmp_path: Path) -> None:
    requests = some_requests(random.Random(0), 30)
    written(tmp_path / "j", requests[:20])
    written(tmp_path / "j", requests[20:])
    assert read(tmp_path / "j") == requests
    assert read(tmp_path / "j", number=4) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_request_that_was_written_in_part_is_not_there(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    requests = some_requests(rng, 12)
    ends = [0, *written(tmp_path / "j", requests)]
    torn = rng.randrange(12)
    content = bytearray((tmp_path / "j").read_bytes())
    start = rng.randrange(ends[torn], ends[torn + 1])
    content[start] ^= 1 << rng.randrange(8)
    for place in range(start + 1, ends[torn + 1]):
        content[place] ^= rng.randrange(256)
    (tmp_path / "j").write_bytes(content)
    assert read(tmp_path / "j") == requests[:torn]
    # A request of the same size takes its place: what was behind it does not come back.
    again = [(requests[torn][0].replace("request", "another"), requests[torn][1])]
    written(tmp_path / "j", again)
    assert read(tmp_path / "j") == requests[:torn] + again


def test_a_journal_in_the_file_of_another_has_its_own_requests_only(tmp_path: Path) -> None:
    requests = some_requests(random.Random(1), 9)
    written(tmp_path / "j", requests, number=1)
    written(tmp_path / "j", requests[:4], number=2)
    assert read(tmp_path / "j", number=2) == requests[:4]


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalFile(tmp_path / "j", number=0)
    append(journal, "first", b"12345678")

    def no_space(file: int, parts: list[memoryview], at: int) -> int:
        os.pwrite(file, bytes(parts[0]), at)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", no_space)
        with pytest.raises(OutsideError, match=r"No space left.*not applied"):
            append(journal, "lost", b"12345678")
    append(journal, "second", b"")
    journal.close()
    assert read(tmp_path / "j", number=0) == [("first", b"12345678"), ("second", b"")]


def test_space_is_filled_ahead_and_never_where_something_was_written(tmp_path: Path) -> None:
    rng = random.Random(2)
    journal, requests = JournalFile(tmp_path / "j", number=0), []
    for count in range(60):
        requests.append((f"request {count}", rng.randbytes(rng.randrange(300_000))))
        append(journal, *requests[-1])
    while journal._space.num_bytes < journal._space._wanted:
        journal._space._thread.join(0.01)
    journal.close()
    assert (tmp_path / "j").stat().st_size > journal.num_bytes
    assert read(tmp_path / "j", number=0) == requests


def test_a_snapshot_replaces_the_journal_at_any_moment_of_a_kill(tmp_path: Path) -> None:
    journal = Journal(tmp_path, least_bytes=10)
    assert requests_of(journal) == []
    append(journal, "one", b"")
    assert journal.is_long(0)
    journal.begin_anew(lambda path: path.mkdir())
    append(journal, "two", b"")
    journal.close()
    (tmp_path / "snapshot-2.partial").mkdir()
    (tmp_path / "journal-0").write_bytes(b"left by a process that was killed")
    again = Journal(tmp_path, least_bytes=10)
    assert again.snapshot == tmp_path / "snapshot-1"
    assert requests_of(again) == [("two", b"")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal-1", "snapshot-1"]

    def fail(path: Path) -> None:
        path.mkdir()
        raise OutsideError("the disk is full")

    with pytest.raises(OutsideError, match="full"):
        again.begin_anew(fail)
    append(again, "three", b"")
    again.close()
    third = Journal(tmp_path, least_bytes=10)
    assert requests_of(third) == [("two", b""), ("three", b"")]
    third.close()


def test_a_snapshot_that_cannot_be_published_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, least_bytes=10)
    assert requests_of(journal) == []
    append(journal, "one", b"12345678")

    def refuse(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path), None, str(target))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        with pytest.raises(OutsideError, match=r"a snapshot for the journal .* cannot be written"):
            journal.begin_anew(lambda path: path.mkdir())
    assert not journal.is_long(0), "it is tried again later"
    append(journal, "two", b"12345678")
    assert journal.is_long(0)
    journal.close()
    again = Journal(tmp_path, least_bytes=10)
    assert requests_of(again) == [("one", b"12345678"), ("two", b"12345678")]
    assert [path.name for path in tmp_path.iterdir()] == ["journal-0"]
    again.close()
