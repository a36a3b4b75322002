"""Fashion-MNIST: 70,000 pieces of clothing in MNIST's form."""

from __future__ import annotations

from trek.data.datasets.base import Dataset, RemoteFile
from trek.data.datasets.mnist import parse_images

_MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
)


def _file(name: str, size_bytes: int, md5: str) -> RemoteFile:
    return RemoteFile(name, size_bytes, md5=md5, urls=[f"{mirror}/{name}" for mirror in _MIRRORS])


DATASET = Dataset(
    name="fashion-mnist",
    title="Clothing, 28×28 grey, in MNIST's form",
    licence="MIT",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    splits={
        "train": [
            _file("train-images-idx3-ubyte.gz", 26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            _file("train-labels-idx1-ubyte.gz", 29515, "25c81989df183df01b3e8a0aad5dffbe"),
        ],
        "test": [
            _file("t10k-images-idx3-ubyte.gz", 4422102, "bef4ecab320f06d8554ea6380940ec79"),
            _file("t10k-labels-idx1-ubyte.gz", 5148, "bb300cfdad3c16e7a12a480ee83cd310"),
        ],
    },
    parse=parse_images,
    num_rows={"train": 60000, "test": 10000},
)
