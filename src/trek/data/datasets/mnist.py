"""MNIST: 70,000 handwritten digits, 28×28 grey."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trek.data.datasets.base import Dataset, RemoteFile

if TYPE_CHECKING:
    import pyarrow as pa

_MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")


def parse_images(paths: Mapping[str, Path], split: str) -> pa.Table:
    """Columns image (28×28 uint8) and label (uint8) of the idx files of a split."""
    import pyarrow as pa

    prefix = "train" if split == "train" else "t10k"
    images = _read_values(paths[f"{prefix}-images-idx3-ubyte.gz"])
    labels = _read_values(paths[f"{prefix}-labels-idx1-ubyte.gz"])
    return pa.table({"image": images, "label": labels}).combine_chunks()


def _read_values(path: Path) -> pa.ChunkedArray:
    import pyarrow as pa

    from trek.data.sources.files import open_files

    return pa.Table.from_batches(list(open_files(str(path)).read(0))).column("value")


def _file(name: str, size_bytes: int, md5: str, sha256: str) -> RemoteFile:
    return RemoteFile(name, size_bytes, sha256, md5, urls=[f"{mirror}/{name}" for mirror in _MIRRORS])


DATASET = Dataset(
    name="mnist",
    title="Handwritten digits, 28×28 grey",
    licence="CC BY-SA 3.0",
    homepage="http://yann.lecun.com/exdb/mnist/",
    splits={
        "train": [
            _file(
                "train-images-idx3-ubyte.gz",
                9912422,
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            _file(
                "train-labels-idx1-ubyte.gz",
                28881,
                "d53e105ee54ea40749a09fcbcd1e9432",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
        ],
        "test": [
            _file(
                "t10k-images-idx3-ubyte.gz",
                1648877,
                "9fb629c4189551a2d022fa330f9573f3",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            _file(
                "t10k-labels-idx1-ubyte.gz",
                4542,
                "ec29112dd5afa0611ce80d1b7f02629c",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ],
    },
    parse=parse_images,
    num_rows={"train": 60000, "test": 10000},
)
