"""JournalFile: requests, one after the other, in a file that has its space before they come.

To write where a file has space, or even old contents, takes a fraction of the time of appending to it. So the end of a
file says nothing, and a request is known by its checksum instead, which also covers the checksum before it: a request
that was not written completely, or what a journal before had written there, is not taken for the next one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trek.errors import CheckpointError, InputError, OutsideError
from trek.ps.checksum import checksum_of
from trek.ps.journal_space import JournalSpace
from trek.ps.protocol import messages as pb
from trek.ps.protocol.frames import NO_BODY
from trek.ps.protocol.tensors import Bytes

_HEADER = struct.Struct("<IQQ")
"""Bytes of the message, bytes that follow it, checksum."""


class JournalFile:
    """One journal. One thread at a time."""

    def __init__(self, path: Path, *, number: int) -> None:
        """`number` tells the requests of this journal from those of an earlier one in the same file."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._space = JournalSpace(self._file)
        self._last = number
        self._before = 0, number
        self.num_bytes = 0
        """Up to the end of the last request."""

    def replay(self, handle: Callable[[pb.Envelope, Bytes], None]) -> int:
        """Hand out every request from the first to the last complete one, and go on there; how many they were."""
        count = 0
        while (found := self._next()) is not None:
            message, body, last = found
            request = pb.Envelope.FromString(message)
            try:
                handle(request, body)
            except InputError as error:
                raise self._unusable(request, count + 1, error) from error
            self._last = last
            self.num_bytes += _HEADER.size + len(message) + len(body)
            count += 1
        return count

    def _unusable(self, request: pb.Envelope, number: int, error: InputError) -> CheckpointError:
        do = request.WhichOneof("message") or "unknown"
        pushed = request.push_gradient
        of = f" (number {pushed.sequence} of {pushed.source!r})" if do == "push_gradient" else ""
        return CheckpointError(
            f"request {number} of the journal {self._path}, a {do}{of}, cannot be applied: {error} An older version of "
            "Trek has written it. Start the server with an empty folder and restore a checkpoint, or give up this "
            f"request and all after it: truncate --size={self.num_bytes} {self._path}"
        )

    def append(self, envelope: pb.Envelope, body: Bytes) -> None:
        """Write a request. OutsideError if that is not possible; then it is as if it had not been asked for."""
        message = envelope.SerializeToString()
        checksum = checksum_of(message, body, after=self._last)
        head = _HEADER.pack(len(message), len(body), checksum) + message
        end = self.num_bytes + len(head) + len(body)
        try:
            self._space.reserve(end)
            self._write([memoryview(head), body.data])
        except OSError as error:
            raise OutsideError(
                f"the journal {self._path} cannot be written: {error.strerror}. The request was not applied: "
                "free some space, and repeat it."
            ) from error
        self._before = self.num_bytes, self._last
        self.num_bytes, self._last = end, checksum

    def take_back(self) -> None:
        """Have the last request not written."""
        self.num_bytes, self._last = self._before
        os.pwrite(self._file, bytes(_HEADER.size), self.num_bytes)

    def close(self) -> None:
        """Close the file."""
        self._space.close()
        os.close(self._file)

    def _next(self) -> tuple[bytes, Bytes, int] | None:
        at = self.num_bytes
        head = os.pread(self._file, _HEADER.size, at)
        if len(head) < _HEADER.size:
            return None
        size, body_size, checksum = _HEADER.unpack(head)
        if at + _HEADER.size + size + body_size > self._space.num_bytes:
            return None
        message = os.pread(self._file, size, at + _HEADER.size)
        body: Bytes = np.empty(body_size, np.uint8) if body_size else NO_BODY
        _read(self._file, body.data, at=at + _HEADER.size + size)
        is_next = checksum_of(message, body, after=self._last) == checksum
        return (message, body, checksum) if is_next else None

    def _write(self, parts: list[memoryview]) -> None:
        at = self.num_bytes
        while parts:
            written = os.pwritev(self._file, parts, at)
            at += written
            while parts and written >= len(parts[0]):
                written -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][written:]


def _read(file: int, target: memoryview, *, at: int) -> None:
    while len(target):
        count = os.preadv(file, [target], at)
        if not count:
            return  # shorter than its size a moment ago: the checksum will not fit
        target, at = target[count:], at + count
