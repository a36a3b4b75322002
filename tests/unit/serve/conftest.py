"""Small models for the tests of serving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.testing.serving import train_points


@pytest.fixture(scope="session")
def points(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a checkpoint of PointsTrial."""
    return train_points(tmp_path_factory.mktemp("points"))


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """The folder of a random BERT of a few thousand weights, and its tokenizer."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    place = tmp_path / "bert"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad"]
    transformers.BertTokenizerFast(vocab={word: at for at, word in enumerate(words)}).save_pretrained(place)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(words), id2label={0: "no", 1: "yes"}, **sizes)
    transformers.BertForSequenceClassification(config).save_pretrained(place)
    return place
