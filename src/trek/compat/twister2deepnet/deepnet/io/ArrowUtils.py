"""`twister2deepnet.deepnet.io.ArrowUtils`: data frames in Parquet files, over Arrow."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from trek.errors import DataUnavailable


class ArrowUtils:
    """Functions of tables."""

    @staticmethod
    def create_to_table(dataFrame: pd.DataFrame) -> pa.Table:  # noqa: N803 - their name
        """A data frame as an Arrow table."""
        return pa.Table.from_pandas(dataFrame, preserve_index=False)

    @staticmethod
    def write_to_table(table: pa.Table, save_path: Path | str) -> None:
        """Write a Parquet file, completely or not at all."""
        target = Path(save_path)
        partial = target.with_name(f".{target.name}.partial")
        pq.write_table(table, partial)
        partial.replace(target)

    @staticmethod
    def read_from_table(load_path: Path | str) -> pd.DataFrame:
        """The data frame of a Parquet file."""
        if not Path(load_path).is_file():
            raise DataUnavailable(f"{load_path} not found. Run the step that writes it first.")
        frame: pd.DataFrame = pq.read_table(load_path).to_pandas()
        return frame
