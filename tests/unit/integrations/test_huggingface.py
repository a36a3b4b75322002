"""Transformers as Trials: a tiny random model is fine-tuned, resumed, adapted, saved and opened again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
import trek
from trek.errors import ConfigError, InputError
from trek.integrations.huggingface import (
    HuggingFaceTrial,
    as_table,
    linear_schedule,
    model_inputs,
    save_pretrained,
    tokenize,
    trim,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # those of transformers and what it imports
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "very", "not"]
ROWS = {
    "sentence": ["good film", "bad film", "very good film", "very bad film", "good", "bad", "good good", "bad bad"] * 4,
    "label": [1, 0, 1, 0, 1, 0, 1, 0] * 4,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of a few thousand weights, and its tokenizer."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    place = tmp_path_factory.mktemp("bert")
    BertTokenizerFast(vocab={word: index for index, word in enumerate(WORDS)}).save_pretrained(place)
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    torch.manual_seed(0)
    BertForSequenceClassification(BertConfig(vocab_size=len(WORDS), **sizes)).save_pretrained(place)
    return place


class Films(HuggingFaceTrial):
    """Eight sentences."""

    def training_data(self) -> Any:
        return tokenize(trek.data.Table.of(ROWS), self.tokenizer(), text="sentence", max_length=8)

    validation_data = training_data


def fit(folder: Path, **hparams: Any) -> Any:
    values = {"model": str(folder), "global_batch_size": 8, "learning_rate": 0.01, **hparams}
    return trek.fit(Films, hparams=values, max_length=trek.epochs(15), show_progress=False)


def test_a_model_is_fine_tuned_saved_and_opened_by_transformers(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    result = fit(folder)
    assert result.best["accuracy"] == 1.0
    tokenizer = AutoTokenizer.from_pretrained(folder)
    saved = save_pretrained(result.checkpoint, tmp_path / "saved", trial_class=Films, tokenizer=tokenizer)
    model = AutoModelForSequenceClassification.from_pretrained(saved).eval()
    inputs = AutoTokenizer.from_pretrained(saved)(["very good film", "bad film"], padding=True, return_tensors="pt")
    assert model(**inputs).logits.argmax(1).tolist() == [1, 0]


def test_adapters_alone_are_trained_and_merged_when_the_model_is_saved(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="peft is not installed")
    from safetensors.torch import load_file

    result = fit(folder, lora={"r": 2, "target_modules": ["query"]})
    saved = save_pretrained(result.checkpoint, tmp_path / "saved", trial_class=Films)
    before, after = load_file(folder / "model.safetensors"), load_file(saved / "model.safetensors")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys()
    assert changed == {"bert.encoder.layer.0.attention.self.query.weight", "classifier.weight", "classifier.bias"}
    with pytest.raises(ConfigError, match="invalid settings of lora"):
        fit(folder, lora={"rank": 2})


def test_a_dataset_of_datasets_is_a_table(folder: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    made = datasets.Dataset.from_dict(ROWS).select(range(1, 9))
    assert as_table(made).to_numpy()["label"].tolist() == ROWS["label"][1:9]
    with pytest.raises(InputError, match=r"expected a trek\.data\.Table or a datasets\.Dataset, got list"):
        as_table([1])


def test_tokens_are_those_of_the_tokenizer_and_batches_are_trimmed(folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    table = tokenize(trek.data.Table.of(ROWS), tokenizer, text="sentence", max_length=8)
    columns = {name: torch.as_tensor(np.asarray(value)) for name, value in table.to_numpy().items()}
    cut = trim(columns)
    expected = tokenizer(ROWS["sentence"], padding=True, return_tensors="pt")
    assert torch.equal(cut["input_ids"], expected["input_ids"])
    assert model_inputs(list(columns.values()), list(columns))["labels"].tolist() == ROWS["label"]
    with pytest.raises(InputError, match="a batch needs a column 'label' or 'labels'"):
        model_inputs([columns["input_ids"]], ["input_ids"])


def test_the_rate_grows_and_falls_to_nothing() -> None:
    factor = linear_schedule(10, warmup=0.2)
    assert [round(factor(step), 3) for step in (0, 1, 2, 6, 10, 11)] == [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]
    with pytest.raises(ConfigError, match="warmup must be a share"):
        linear_schedule(10, warmup=2)


def test_an_unknown_task_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="task 'poetry' does not exist"):
        fit(folder, task="poetry")
