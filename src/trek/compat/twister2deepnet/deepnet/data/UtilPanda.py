"""`twister2deepnet.deepnet.data.UtilPanda`: arrays as data frames."""

from __future__ import annotations

import numpy as np
import pandas as pd

from trek.errors import InputError


class UtilPanda:
    """Functions of data frames."""

    @staticmethod
    def convert_numpy_to_pandas(ndarray_dataset: np.ndarray) -> pd.DataFrame:
        """A row for each row; columns are called by their numbers."""
        if ndarray_dataset.ndim > 2:
            raise InputError(f"expected an array of one or two dimensions, got {ndarray_dataset.ndim}.")
        frame = pd.DataFrame(ndarray_dataset)
        return frame.rename(columns=str)
