"""DeepFM on Criteo's sample: rows on parameter servers compared with a local `nn.Embedding(sparse=True)`.

    python benchmarks/ps/deepfm.py [--epochs 5] [--repeats 2]

Each case is a run of its own, and the cases alternate. An asynchronous push is a step of its own, so it has as many
samples as a step of the local run, and both make as many steps. Printed are samples per second of the training loop
after its first epoch, and the AUC on the validation rows. Needs the data set (`trek data fetch criteo`).
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trek

CTR = Path(__file__).resolve().parents[2] / "examples" / "ctr" / "model_def.py"
BATCH, DIM, BINS = 512, 16, 100_000
CASES: dict[str, dict[str, Any]] = {
    "local, one process": {"workers": 1, "strategy": "solo"},
    "ps, 1 worker, 1 server": {"workers": 1, "servers": 1, "strategy": "ps", "strategy_options": {"mode": "sync"}},
    "ps, 4 workers, asynchronous": {"workers": 4, "servers": 1, "strategy": "ps"},
}


def load_rows() -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...], int]:
    """Prepared training and validation rows, and the number of ids."""
    spec = importlib.util.spec_from_file_location("ctr_example", CTR)
    assert spec is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)  # type: ignore[union-attr]
    tables = [trek.data.open("criteo", split=split).map(example.log_counts) for split in ("train", "dev", "test")]
    prepare = example.make_preparation(BINS).fit(tables[0])
    together = example.ConcatenateWithOffsets([prepare.num_ids(name) for name in example.CATEGORIES])

    def tensors(table: Any) -> tuple[torch.Tensor, ...]:
        columns = table.map(prepare).to_numpy()
        ids = together([torch.from_numpy(columns[name].copy()) for name in example.CATEGORIES])
        numbers = torch.from_numpy(columns["numbers"].copy()).float()
        return numbers, ids, torch.from_numpy(columns["label"].copy()).float()

    return tensors(tables[0]), tensors(tables[1].union(tables[2])), together.num_ids


class DeepFM(nn.Module):
    """Linear weights, pairwise products and dense layers over the same embeddings."""

    def __init__(self, num_ids: int, *, on_servers: bool) -> None:
        super().__init__()
        if on_servers:
            self.embedding: nn.Module = trek.nn.Embedding("embedding", DIM, initial="normal")
            self.weight: nn.Module = trek.nn.Embedding("weight", 1, initial="zeros")
        else:
            self.embedding = nn.Embedding(num_ids, DIM, sparse=True)
            self.weight = nn.Embedding(num_ids, 1, sparse=True)
            nn.init.normal_(self.embedding.weight, std=0.01)
            nn.init.zeros_(self.weight.weight)
        self.deep = nn.Sequential(nn.Linear(26 * DIM + 13, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """The logit of a click."""
        vectors = self.embedding(ids)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1, keepdim=True) / 2
        deep = self.deep(torch.cat([vectors.flatten(1), numbers], dim=1))
        return (self.weight(ids).sum(1) + pairs + deep).squeeze(1)


def train(tr: trek.Traveler, epochs: int) -> dict[str, float]:
    """Samples per second and AUC."""
    from sklearn.metrics import roc_auc_score

    rows, held, num_ids = load_rows()
    model = tr.add_model(DeepFM(num_ids, on_servers=tr.strategy.name == "ps"))
    sparse = [model.embedding.weight, model.weight.weight]
    optimizers = [
        tr.add_optimizer(torch.optim.SparseAdam(sparse, lr=1e-3)),
        tr.add_optimizer(torch.optim.Adam(model.deep.parameters(), lr=1e-3)),
    ]
    data = tr.add_loader(torch.utils.data.TensorDataset(*rows), batch_size=BATCH, shuffle=True)
    begun = time.perf_counter()
    for epoch in tr.epochs(epochs):
        if epoch == 1:
            begun = time.perf_counter()
        for numbers, ids, label in tr.train(data):
            tr.backward(F.binary_cross_entropy_with_logits(model(numbers, ids), label))
            for optimizer in optimizers:
                tr.step(optimizer)
    took = time.perf_counter() - begun
    with torch.no_grad():
        auc = roc_auc_score(held[2].numpy(), model(held[0], held[1]).numpy())
    return {"samples_per_s": (epochs - 1) * len(rows[0]) / took, "auc": float(auc)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    for _ in range(options.repeats):
        for name, settings in CASES.items():
            found[name].append(trek.run(train, options.epochs, show_progress=False, **settings))
    local = found["local, one process"]
    for name, runs in found.items():
        speed, auc = (median(run[key] for run in runs) for key in ("samples_per_s", "auc"))
        ratio = speed / median(run["samples_per_s"] for run in local)
        change = auc - median(run["auc"] for run in local)
        print(f"{name:28} {speed:9.0f} samples/s, {ratio:5.2f} x local, AUC {auc:.4f} ({change:+.4f})")


if __name__ == "__main__":
    main()
