"""Reading a checkpoint's weights with their checksums verified, beside reading them without: 1 GB, warm page cache.

Run with `python benchmarks/train/verified_load.py [MEGABYTES]`; prints seconds and the ratio.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, Snapshot
from trek.train.checkpointing.checkpoint_writer import CheckpointWriter
from trek.train.checkpointing.keeping import KeepPolicy
from trek.train.checkpointing.stores import open_storage


def main(megabytes: int = 1000) -> None:
    """Write one checkpoint and read it both ways, alternating."""
    with tempfile.TemporaryDirectory() as folder:
        writer = CheckpointWriter(open_storage(folder), policy=KeepPolicy())
        weights = {f"layer.{i}": torch.randn(megabytes * 250_000 // 16) for i in range(16)}
        writer.save(Snapshot([weights], {"optimization": {"emas": []}}, [{}]), batches=1, metrics={}, score=None)
        writer.close()
        path = next(Path(folder).glob("batch-*"))
        plain, verified = [], []
        for _ in range(5):
            plain.append(_seconds(lambda: load_file(path / "model.safetensors")))
            verified.append(_seconds(lambda: CheckpointFolder(path).state_dict()))
    print(
        f"{megabytes} MB: plain {min(plain):.3f} s, verified {min(verified):.3f} s, {min(verified) / min(plain):.2f}x"
    )


def _seconds(read: Callable[[], dict[str, torch.Tensor]]) -> float:
    """Until every value was in memory: a mapped file is only read when it is used."""
    began = time.perf_counter()
    copies = [value.clone() for value in read().values()]
    del copies
    return time.perf_counter() - began


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
