"""`twister2deepnet.deepnet.util.utils`: from TSets to the batches of a training loop."""

from __future__ import annotations

from math import isqrt

import numpy as np
import torch

from trek.compat.twister2.tset.TSet import TSet
from trek.compat.twister2deepnet.deepnet.data.DataUtil import DataUtil
from trek.errors import InputError


def tset_to_numpy(tset: TSet) -> list[np.ndarray]:
    """This worker's elements as arrays."""
    return [np.asarray(element) for element in tset.get_local_data()]


def fix_array_shape(data: np.ndarray) -> np.ndarray:
    """An array of one dimension as a column; others as they are."""
    return data.reshape(-1, 1) if data.ndim == 1 else data


def generate_minibatches(input_data: np.ndarray, world_size: int = 4, init_batch_size: int = 128) -> torch.Tensor:
    """Batches of this worker, whose share of `init_batch_size` is one part in `world_size`; see `DataUtil`."""
    return DataUtil.generate_minibatches(data=input_data, minibatch_size=max(init_batch_size // world_size, 1))


def format_data(data: torch.Tensor) -> torch.Tensor:
    """Rows of pixels as square images: (batches, rows, height, width)."""
    side = isqrt(data.shape[2])
    if side * side != data.shape[2]:
        raise InputError(f"expected rows of square images, got rows of {data.shape[2]} values.")
    return data.reshape(data.shape[0], data.shape[1], side, side)


def format_target(data: torch.Tensor) -> torch.Tensor:
    """Targets as (batches, rows)."""
    return data.reshape(data.shape[0], data.shape[1])
