"""Tensors in temporary files: what was appended comes back, of every type, and costs no memory of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from trek.errors import StorageError
from trek.ps.disk_tensors import DiskTensor, DiskTensorWriter


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_blocks_become_one_tensor_that_can_be_saved(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    blocks = [torch.randint(100, (count, *shape)).to(dtype) for count in (4, 0, 7)]
    writer = DiskTensorWriter()
    for block in blocks:
        writer.append(block)
    found = writer.finish()
    assert isinstance(found, DiskTensor)
    assert found.dtype == dtype
    assert torch.equal(found, torch.cat(blocks))
    save_file({"x": found}, tmp_path / "x.safetensors")
    assert torch.equal(load_file(tmp_path / "x.safetensors")["x"], torch.cat(blocks))


def test_without_rows_it_is_empty() -> None:
    writer = DiskTensorWriter()
    writer.append(torch.empty(0, 5, dtype=torch.int64))
    found = writer.finish()
    assert (found.shape, found.dtype) == ((0, 5), torch.int64)


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb", buffering=0)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: full)
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/full")
    writer = DiskTensorWriter()
    with pytest.raises(StorageError, match=r"no space left in /full\. Free some, or set TMPDIR"):
        writer.append(torch.ones(1000))
    writer.close()
