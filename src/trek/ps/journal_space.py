"""JournalSpace: the space of a file, which a thread fills with zeros before it is needed.

To write into pages that the system has in memory takes a fraction of the time that it takes to get new ones.
"""

from __future__ import annotations

import os
import threading

_BLOCK = bytes(1 << 20)
_MOST_AHEAD = 64 << 20


class JournalSpace:
    """Space from the beginning of a file to `num_bytes`. Who writes into it is one thread."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.num_bytes = os.fstat(file).st_size
        self._wanted = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._fill, name="trek-ps-journal", daemon=True)
        self._thread.start()

    def reserve(self, end: int) -> None:
        """Have space up to `end`, and some more soon: about as much as there was used, within limits."""
        ahead = end + min(end, _MOST_AHEAD)
        if ahead <= self._wanted and end <= self.num_bytes:
            return
        with self._changed:
            if end > self.num_bytes:
                os.posix_fallocate(self._file, self.num_bytes, end - self.num_bytes)
                self.num_bytes = end
            self._wanted = ahead + min(end, _MOST_AHEAD)
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread; the file stays open."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _fill(self) -> None:
        while self._fill_block():
            pass

    def _fill_block(self) -> bool:
        """Fill one block if that is wanted, or wait for it; False when there is nothing more to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self.num_bytes < self._wanted)
            if self._is_closed:
                return False
            try:
                self.num_bytes += os.pwrite(self._file, _BLOCK, self.num_bytes)
            except OSError:
                return False  # the disk is full: whoever needs the space finds out, and says so
            return True
