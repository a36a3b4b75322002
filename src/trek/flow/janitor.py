"""Removes a folder of shared memory once the process that holds our stdin is gone, however it went."""

from __future__ import annotations

import shutil
import sys
import time

GOODBYE = b"goodbye"


def main(folder: str) -> None:
    """Wait for the end of stdin, then remove."""
    said_goodbye = sys.stdin.buffer.read() == GOODBYE
    shutil.rmtree(folder, ignore_errors=True)
    if not said_goodbye:
        # The run was killed, and its workers with it; one of them may have been writing a moment longer.
        for _ in range(10):
            time.sleep(0.2)
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
