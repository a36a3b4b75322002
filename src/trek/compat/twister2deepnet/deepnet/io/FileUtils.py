"""`twister2deepnet.deepnet.io.FileUtils`: folders."""

from __future__ import annotations

from pathlib import Path


class FileUtils:
    """Functions of folders."""

    @staticmethod
    def mkdir_branch_with_access(dir_path: Path | str) -> None:
        """Have a folder, with those above it."""
        Path(dir_path).mkdir(parents=True, exist_ok=True)
