"""Fine-tune a pretrained encoder on SST-2, film reviews that praise or do not.

    python finetune.py --model FOLDER_OR_NAME [--epochs 1] [--rows 4000] [--lora] [--workers 2]

`--model tiny` trains a small random model instead, which needs no download.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import trek
from trek.integrations.huggingface import HuggingFaceTrial, save_pretrained, tokenize


class Reviews(HuggingFaceTrial):
    """Sentences and whether they praise."""

    def training_data(self) -> Any:
        table = trek.data.open("sst2").head(self.hparam("rows", 67_349))
        return tokenize(table, self.tokenizer(), text="sentence", max_length=self.hparam("max_length", 64))

    def validation_data(self) -> Any:
        table = trek.data.open("sst2", split="dev")
        return tokenize(table, self.tokenizer(), text="sentence", max_length=self.hparam("max_length", 64))


def tiny_model(folder: Path) -> Path:
    """A random encoder whose vocabulary is the most frequent words of the reviews."""
    from collections import Counter

    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    sentences = trek.data.open("sst2").head(5000).to_numpy()["sentence"]
    words = Counter(word for sentence in sentences for word in str(sentence).split()).most_common(2000)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(word for word, _ in words)]
    BertTokenizerFast(vocab={word: index for index, word in enumerate(vocabulary)}).save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertForSequenceClassification(BertConfig(vocab_size=len(vocabulary), **sizes)).save_pretrained(folder)
    return folder


def main() -> None:
    """Fine-tune, and save the model where transformers can read it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rows", type=int, default=67_349)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("reviews-model"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        is_tiny = args.model == "tiny"
        model = str(tiny_model(Path(folder))) if is_tiny else args.model
        hparams = {"model": model, "global_batch_size": 32, "rows": args.rows}
        hparams |= {"learning_rate": 1e-3} if is_tiny else {}
        hparams |= {"lora": {"r": 8, "target_modules": ["query", "value"]}} if args.lora else {}
        result = trek.fit(Reviews, hparams=hparams, max_length=trek.epochs(args.epochs), workers=args.workers)
        assert result.best is not None
        assert result.checkpoint is not None
        print(f"accuracy {result.best['accuracy']:.3f}")
        print(f"saved to {save_pretrained(result.checkpoint, args.output, trial_class=Reviews)}")


if __name__ == "__main__":
    main()
