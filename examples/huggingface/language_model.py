"""Train a small language model from scratch, on the letters of film reviews, and let it write.

python language_model.py [--epochs 1] [--rows 20000]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torch import nn

import trek
from trek.integrations.huggingface import HuggingFaceTrial

LETTERS = "\n abcdefghijklmnopqrstuvwxyz'.,!?-0123456789"
WIDTH = 64


def to_ids(text: str) -> list[int]:
    """Letters that are not known are left out."""
    return [LETTERS.index(letter) for letter in text if letter in LETTERS]


class Letters(HuggingFaceTrial):
    """A small GPT-2 over letters; the labels are the ids themselves, which the model shifts."""

    def model(self) -> nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        sizes = {"n_positions": WIDTH, "n_embd": 96, "n_layer": 2, "n_head": 4}
        special = {"bos_token_id": 0, "eos_token_id": 0}
        return GPT2LMHeadModel(GPT2Config(vocab_size=len(LETTERS), **sizes, **special))

    def training_data(self) -> Any:
        return self._lines("train", self.hparam("rows", 67_349))

    def validation_data(self) -> Any:
        return self._lines("dev", 872)

    def _lines(self, split: str, rows: int) -> trek.data.Table:
        sentences = trek.data.open("sst2", split=split).head(rows).to_numpy()["sentence"]
        ids = np.array(to_ids("\n".join(str(one) for one in sentences)), dtype=np.int32)
        blocks = ids[: len(ids) // WIDTH * WIDTH].reshape(-1, WIDTH)
        return trek.data.Table.of({"input_ids": blocks, "labels": blocks})


def main() -> None:
    """Train, then write a few lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rows", type=int, default=20_000)
    args = parser.parse_args()
    hparams = {"global_batch_size": 64, "learning_rate": 3e-3, "rows": args.rows}
    result = trek.fit(Letters, hparams=hparams, max_length=trek.epochs(args.epochs))
    assert result.best is not None
    assert result.checkpoint is not None
    print(f"validation loss {result.best['validation_loss']:.3f} per letter")
    model: Any = result.checkpoint.load_model(Letters)
    torch.manual_seed(0)
    start = torch.tensor([to_ids("\nthe film ")])
    written = model.generate(start, max_new_tokens=50, do_sample=True, temperature=0.7, pad_token_id=0)
    print("".join(LETTERS[one] for one in written[0].tolist()).strip())


if __name__ == "__main__":
    main()
