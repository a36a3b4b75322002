"""DeepNet's utilities: each fault of the original is a test."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from trek.compat.mpi4py import MPI
from trek.compat.twister2deepnet.deepnet.data.DataUtil import DataUtil
from trek.compat.twister2deepnet.deepnet.data.UtilPanda import UtilPanda
from trek.compat.twister2deepnet.deepnet.examples.MnistDistributed import MnistDistributed
from trek.compat.twister2deepnet.deepnet.io.ArrowUtils import ArrowUtils
from trek.compat.twister2deepnet.deepnet.io.FileUtils import FileUtils
from trek.compat.twister2deepnet.deepnet.torch import distributed as dist
from trek.compat.twister2deepnet.deepnet.util import utils
from trek.errors import DataUnavailable, InputError


def write_idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes()))


def test_every_rank_has_its_own_share_of_the_rows(tmp_path: Path) -> None:
    FileUtils.mkdir_branch_with_access(tmp_path / "train")
    images = np.repeat(np.arange(10, dtype=np.uint8), 784).reshape(10, 28, 28)
    write_idx(tmp_path / "train" / "train-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "train" / "train-labels-idx1-ubyte.gz", np.arange(10, dtype=np.uint8))
    shares = [MnistDistributed(tmp_path, parallelism=4, world_rank=rank).train_data for rank in range(4)]
    assert [share[1].ravel().tolist() for share in shares] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 0, 1]]
    assert {share[0].shape for share in shares} == {(3, 784)}
    assert [share[2] for share in shares] == [32] * 4
    with pytest.raises(InputError, match="world_rank must be from 0 to 3, got 4"):
        MnistDistributed(tmp_path, parallelism=4, world_rank=4)


@pytest.mark.parametrize("rows", [1, 3, 4, 10, 30, 97])
def test_every_row_is_in_one_batch_also_the_last_ones(rows: int) -> None:
    data = np.arange(rows * 2, dtype=np.float64).reshape(rows, 2)
    batches = DataUtil.generate_minibatches(data, minibatch_size=4)
    assert batches.dtype == torch.float32
    np.testing.assert_array_equal(batches.reshape(rows, 2).numpy(), data)
    assert batches.shape[1] <= 4


def test_batches_become_images_and_targets() -> None:
    images = utils.generate_minibatches(np.zeros((8, 784), np.uint8), world_size=2, init_batch_size=8)
    assert utils.format_data(images).shape == (2, 4, 28, 28)
    targets = utils.generate_minibatches(utils.fix_array_shape(np.arange(8)), world_size=2, init_batch_size=8)
    assert utils.format_target(targets).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(InputError, match="expected rows of square images, got rows of 10 values"):
        utils.format_data(torch.zeros(1, 1, 10))
    with pytest.raises(InputError, match="need rows"):
        DataUtil.generate_minibatches(np.zeros((0, 2)))


def test_arrays_are_written_and_read_as_parquet(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    table = ArrowUtils.create_to_table(dataFrame=UtilPanda.convert_numpy_to_pandas(array))
    ArrowUtils.write_to_table(table=table, save_path=tmp_path / "0.data")
    np.testing.assert_array_equal(ArrowUtils.read_from_table(tmp_path / "0.data").to_numpy(), array)
    assert [one.name for one in tmp_path.iterdir()] == ["0.data"]
    with pytest.raises(DataUnavailable, match="Run the step that writes it"):
        ArrowUtils.read_from_table(tmp_path / "1.data")


def test_one_worker_is_a_world_of_its_own() -> None:
    assert (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()) == (0, 1)
    dist.init_process_group("mpi", rank=0, world_size=1)
    try:
        assert dist.all_reduce(torch.tensor(2.0)) == 2.0
        assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
        with pytest.raises(InputError, match="worker 0 of 1, but the script says 1 of 4"):
            dist.init_process_group("mpi", rank=1, world_size=4)
    finally:
        dist.destroy_process_group()
