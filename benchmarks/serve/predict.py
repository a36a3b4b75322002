"""Rows a second of `trek.serve.predict` beside a loop written by hand, over the same Parquet file.

    python benchmarks/serve/predict.py [--rows 60000] [--rounds 3]

Both read images of 28 by 28 from Parquet, run the network on 256 of them at a time with one thread of torch, and write
the logits to Parquet. Rounds alternate; figures are medians of whole runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from requests_per_second import HERE, train

import trek.data
from trek.serve import predict

BATCH = 256


def by_hand(checkpoint: str, data: Path, output: Path) -> None:
    """The loop that one would write."""
    from model_def import Images

    import trek

    model = trek.Checkpoint(checkpoint).load_model(Images)
    with pq.ParquetWriter(output, pa.schema({"output": pa.list_(pa.float32(), 10)})) as writer:
        for batch in trek.data.open(str(data)):
            images = batch.column("input_0").to_numpy_ndarray()
            with torch.inference_mode():
                found = [
                    model(torch.from_numpy(images[at : at + BATCH].copy()).unsqueeze(1))
                    for at in range(0, len(images), BATCH)
                ]
            flat = pa.array(torch.cat(found).numpy().reshape(-1))
            writer.write_table(pa.table({"output": pa.FixedSizeListArray.from_arrays(flat, 10)}))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(HERE))
    times: dict[str, list[float]] = {"trek": [], "by hand": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint, _ = train(folder)
        images = np.random.default_rng(0).random((args.rows, 28, 28), dtype="float32")
        trek.data.Table.of({"input_0": images}).persist(folder / "images")
        for number in range(args.rounds):
            began = time.perf_counter()
            predict(checkpoint, folder / "images", folder / f"trek-{number}.parquet", code=HERE, batch_size=BATCH)
            times["trek"].append(time.perf_counter() - began)
            began = time.perf_counter()
            by_hand(checkpoint, folder / "images", folder / f"hand-{number}.parquet")
            times["by hand"].append(time.perf_counter() - began)
    rates = {name: args.rows / statistics.median(found) for name, found in times.items()}
    for name, rate in rates.items():
        print(f"{name:8} {rate:10,.0f} rows/s")
    print(f"trek / by hand: {rates['trek'] / rates['by hand']:.2f}")


if __name__ == "__main__":
    main()
