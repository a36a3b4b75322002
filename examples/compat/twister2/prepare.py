"""Two workers read their halves of the digits as a TSet, and write them as Parquet files, in Twister2's spelling.

    python prepare.py        starts itself as two processes
"""

import os

import numpy as np

import trek
from trek.compat.twister2.tset.fn.SourceFunc import SourceFunc
from trek.compat.twister2.Twister2Environment import Twister2Environment
from trek.compat.twister2deepnet.deepnet.data.UtilPanda import UtilPanda
from trek.compat.twister2deepnet.deepnet.io.ArrowUtils import ArrowUtils
from trek.compat.twister2deepnet.deepnet.io.FileUtils import FileUtils

WORKERS, FOLDER = 2, "digits"

env = Twister2Environment(resources=[{"cpu": 1, "ram": 512, "instances": WORKERS}])


class Half(SourceFunc):
    """The rows of this worker: pixels, with the label as the last column."""

    def __init__(self) -> None:
        super().__init__()
        columns = trek.data.open("digits").to_numpy()
        pixels, labels = columns["image"].reshape(-1, 64) / 16, columns["label"]
        equal = len(labels) // 64 * 64  # so that both workers have the same number of batches of 32
        self.rows = [np.column_stack([pixels, labels])[:equal][env.worker_id :: WORKERS]]

    def has_next(self) -> bool:
        return bool(self.rows)

    def next(self) -> np.ndarray:
        return self.rows.pop()


def write(rows, collector, context) -> None:
    for one in rows:
        table = ArrowUtils.create_to_table(dataFrame=UtilPanda.convert_numpy_to_pandas(one))
        ArrowUtils.write_to_table(table=table, save_path=os.path.join(FOLDER, f"{env.worker_id}.parquet"))


FileUtils.mkdir_branch_with_access(FOLDER)
env.create_source(Half(), WORKERS).compute(write).cache()
print(f"worker {env.worker_id} wrote its half")
