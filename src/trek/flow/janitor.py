"""Removes a folder of shared memory once the process that holds our stdin has ended, however it ended."""

from __future__ import annotations

import shutil
import sys
import time

ENDED_WELL = b"done"


def main(folder: str) -> None:
    """Wait for the end of stdin, then remove."""
    ended_well = sys.stdin.buffer.read() == ENDED_WELL
    shutil.rmtree(folder, ignore_errors=True)
    if not ended_well:
        # The run was killed, and its workers with it; one of them may have been writing a moment longer.
        for _ in range(10):
            time.sleep(0.2)
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
