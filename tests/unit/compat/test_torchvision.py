"""The stand-in for torchvision: MNIST from a folder, and its transforms."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from trek.compat.torchvision import datasets, transforms
from trek.errors import DataUnavailable, InputError


def write_idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + values.tobytes()))


def test_images_and_digits_are_read_from_a_folder(tmp_path: Path) -> None:
    images = np.arange(2 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(2, 28, 28)
    write_idx(tmp_path / "MNIST" / "raw" / "t10k-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz", np.array([7, 2], np.uint8))
    chain = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.25,))])
    found = datasets.MNIST(tmp_path, train=False, transform=chain)
    image, digit = found[1]
    assert (len(found), digit, tuple(image.shape)) == (2, 2, (1, 28, 28))
    torch.testing.assert_close(image[0], (torch.from_numpy(images[1]).float() / 255 - 0.5) / 0.25)
    assert found.test_data.shape == (2, 28, 28)
    assert found.test_labels.tolist() == [7, 2]


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"train-images-idx3-ubyte not found in .* Pass download=True"):
        datasets.MNIST(tmp_path)
    with pytest.raises(InputError, match="ToTensor expects an image"):
        transforms.ToTensor()(torch.zeros(3))
