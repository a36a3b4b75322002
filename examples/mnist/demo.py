"""The main workflow, end to end: fetch data, prepare it, train with two processes, validate, save, and report.

Run by `make demo`. Uses MNIST if it is available, else scikit-learn's digits, which need no network.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

import trek
from trek.flow import scratch

HERE = Path(__file__).parent
# The small data set needs smaller batches and more epochs.
SETTINGS: dict[str, dict[str, Any]] = {
    "mnist": {},
    "digits": {
        "searcher.max_length.epochs": 20,
        "hyperparameters.global_batch_size": 16,
        "hyperparameters.learning_rate": 0.02,
    },
}

flow = trek.Flow("mnist-demo")


def fetch() -> tuple[str, str]:
    """The name of the available data set, and the reason if it is not MNIST."""
    try:
        trek.data.open("mnist", split="train")
    except trek.TrekError as error:
        return "digits", str(error)
    return "mnist", ""


def prepare(name: str) -> Path:
    """Write both splits as Parquet shards with images of 28×28 bytes."""
    for split in ("train", "test"):
        trek.data.open(name, split=split).map(to_28x28).partition(4).persist(scratch() / "prepared" / split)
    return scratch() / "prepared"


def to_28x28(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Resize images to 28×28; those of MNIST already have this size."""
    if batch["image"].shape[1:] == (28, 28):
        return batch
    small = torch.from_numpy(batch["image"].copy()).float().unsqueeze(1)
    large = F.interpolate(small, size=(28, 28), mode="bilinear", align_corners=False).squeeze(1)
    return {**batch, "image": (large * (255 / 16)).clamp(0, 255).byte().numpy()}


source, reason = flow.step(fetch, outputs=2, cache=False)
prepared = flow.step(prepare, source)


def main() -> int:
    """Run the flow, then the experiment, then show the results."""
    run = flow.run()
    if run[reason]:
        print(f"Training on scikit-learn's digits, because MNIST is not available: {run[reason]}")
    experiment = train(run.path(prepared), SETTINGS[run[source]])
    table = epoch_table(experiment)
    print(f"\n{table.to_string(index=False)}\n")
    image = draw(table)
    print(f"Curves:     {image}")
    print(f"Inspect:    trek experiment describe {experiment}")
    print(f"            trek experiment logs {experiment}")
    print("Change:     edit examples/mnist/const.yaml, then: cd examples/mnist && trek experiment create const.yaml .")
    print(f"(trek is installed at {Path(sys.executable).with_name('trek')})", flush=True)
    subprocess.run([*TREK, "web", f"/experiments/{experiment}", "--no-open"], check=True)
    return 0


def train(folder: Path, settings: dict[str, Any]) -> int:
    """Run `trek experiment create const.yaml .` with the prepared data; returns the experiment's id."""
    chosen = {"data.prepared": folder, **settings}
    options = [part for key, value in chosen.items() for part in ("--config", f"{key}={value}")]
    subprocess.run([*TREK, "experiment", "create", "const.yaml", ".", *options], cwd=HERE, check=True)
    return int(max(one["id"] for one in run_json("experiment", "list")))


def epoch_table(experiment: int) -> pd.DataFrame:
    """One row per epoch, from the recorded metrics; each epoch ends with a validation."""
    trial = run_json("experiment", "describe", str(experiment))["trials"][0]["id"]
    rows: list[dict[str, Any]] = []
    trained: list[dict[str, Any]] = []
    for point in run_json("trial", "metrics", str(trial)):
        if point["group"] == "training":
            trained.append(point)
        elif point["group"] == "validation":
            rows.append(epoch_row(len(rows) + 1, trained, point))
            trained = []
    return pd.DataFrame(rows).round(4)


def epoch_row(epoch: int, trained: list[dict[str, Any]], validated: dict[str, Any]) -> dict[str, Any]:
    """The reports of one epoch and its validation as one row."""
    return {
        "epoch": epoch,
        "train loss": np.mean([point["metrics"]["loss"] for point in trained]),
        "validation loss": validated["metrics"]["validation_loss"],
        "validation accuracy": validated["metrics"]["validation_accuracy"],
        "time": f"{sum(point['duration_s'] for point in [*trained, validated]):.1f} s",
    }


def draw(table: pd.DataFrame) -> Path:
    """Plot the curves to an image file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    table.plot(x="epoch", y=["train loss", "validation loss"], ax=left, marker="o", title="loss")
    table.plot(x="epoch", y="validation accuracy", ax=right, marker="o", title="validation accuracy", legend=False)
    figure.tight_layout()
    figure.savefig(HERE / "curves.png", dpi=120)
    return HERE / "curves.png"


TREK = [sys.executable, "-m", "trek"]


def run_json(*command: str) -> Any:
    """The output of a `trek` command with --json."""
    return json.loads(subprocess.run([*TREK, *command, "--json"], check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    sys.exit(main())
