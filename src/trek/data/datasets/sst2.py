"""SST-2: sentences of film reviews, and whether they praise.

These files, with labels for the test split, have no public URL: put them on a mirror
(`TREK_DATA_MIRROR`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trek.data.datasets.base import Dataset, RemoteFile

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES = {"train": "train.tsv.gz", "dev": "dev.tsv.gz", "test": "test-labeled.tsv.gz"}


def parse_sst2(paths: Mapping[str, Path], split: str) -> pa.Table:
    """Columns sentence and label (1: praise)."""
    import pyarrow as pa
    from pyarrow import csv

    return csv.read_csv(
        paths[_NAMES[split]],
        parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=csv.ConvertOptions(column_types={"sentence": pa.string(), "label": pa.int64()}),
    ).combine_chunks()


DATASET = Dataset(
    name="sst2",
    title="Sentences of film reviews, praise or not",
    licence="none stated; research use",
    homepage="https://nlp.stanford.edu/sentiment/",
    splits={
        "train": [
            RemoteFile(_NAMES["train"], 1443733, "1c4843303462f8f93e006ff618a9e61d207468cafd030046d7d7fd6b78af342b")
        ],
        "dev": [RemoteFile(_NAMES["dev"], 38131, "19553efc6f7bac0b7fdd37d4e29dc37c15e9e779767249a16f857fbfcedb23fa")],
        "test": [RemoteFile(_NAMES["test"], 77128, "e3d99b73f9f8df404d0db2e6bc07b56cb73ac6ecd256b824cb31ca6e27eb0fed")],
    },
    parse=parse_sst2,
    num_rows={"train": 67349, "dev": 872, "test": 1821},
)
