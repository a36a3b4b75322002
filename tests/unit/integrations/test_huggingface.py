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
from trek.serve.handlers.trial_handler import TrialHandler
from trek.train.checkpointing.loading import load_trial

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


@pytest.fixture(scope="module")
def encoder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without a head, so that models with any number of labels are made of it."""
    from transformers import AutoTokenizer, BertForSequenceClassification

    place = tmp_path_factory.mktemp("encoder")
    AutoTokenizer.from_pretrained(folder).save_pretrained(place)
    BertForSequenceClassification.from_pretrained(folder).bert.save_pretrained(place)
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
    with pytest.raises(InputError, match=r"expected one split of a DatasetDict\. Pass one of: 'train', 'test'"):
        as_table(datasets.DatasetDict({"train": made, "test": made}))
    with pytest.raises(InputError, match=r"got a IterableDataset\. Load it without streaming=True"):
        as_table(made.to_iterable_dataset())


@pytest.mark.parametrize("names", [{"text": "review"}, {"text": ("sentence", "review")}, {"keep": ("review",)}])
def test_columns_that_are_not_there_are_refused(names: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"column 'review' not found\. The data has: sentence, label"):
        tokenize(trek.data.Table.of(ROWS), None, **{"text": "sentence", **names})


def test_a_checkpoint_answers_tokenised_rows_with_logits(folder: Path) -> None:
    from transformers import AutoTokenizer

    result = fit(folder)
    handler = TrialHandler(load_trial(result.checkpoint, Films), checkpoint=result.checkpoint)
    assert handler.input_names == ["input_ids", "token_type_ids", "attention_mask"]
    tokens = AutoTokenizer.from_pretrained(folder)(
        ["very good film", "bad film"], padding="max_length", max_length=8, return_tensors="np"
    )
    answer = handler.predict(handler.fit({name: tokens[name] for name in handler.input_names}))
    assert answer["logits"].argmax(1).tolist() == [1, 0]


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


@pytest.mark.parametrize("padding", ["left", "right", "both"])
def test_every_tensor_with_a_value_per_token_is_cut_where_its_padding_is(padding: str) -> None:
    begin, end = {"left": (2, 6), "right": (0, 4), "both": (1, 5)}[padding]
    mask = torch.zeros(2, 6, dtype=torch.int32)
    mask[0, begin:end] = mask[1, begin + 1 : end] = 1
    tokens = torch.arange(12, dtype=torch.int32).reshape(2, 6)
    batch = {
        "input_ids": tokens,
        "attention_mask": mask,
        "token_type_ids": tokens,
        "labels": tokens,
        "weight": tokens / 2,
    }
    cut = trim(batch | {"boxes": tokens[..., None].expand(2, 6, 4), "score": torch.tensor([0.5, 1.5]).double()})
    for name in ("input_ids", "token_type_ids", "labels"):
        assert torch.equal(cut[name], tokens[:, begin:end].long())
    assert torch.equal(cut["attention_mask"], mask[:, begin:end].long())
    assert torch.equal(cut["weight"], tokens[:, begin:end] / 2)
    assert torch.equal(cut["boxes"][..., 0], tokens[:, begin:end].long())
    assert torch.equal(cut["score"], torch.tensor([0.5, 1.5]))
    assert torch.equal(trim(batch, keep=["labels"])["labels"], tokens.long())
    assert trim(batch | {"attention_mask": mask * 0})["input_ids"].shape == (2, 6)
    assert trim({"input_ids": tokens})["input_ids"].dtype == torch.int64


def test_tokens_padded_on_the_left_are_those_of_the_tokenizer(folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    table = tokenize(trek.data.Table.of(ROWS), tokenizer, text="sentence", max_length=8)
    cut = trim({name: torch.as_tensor(np.asarray(value)) for name, value in table.to_numpy().items()})
    assert torch.equal(cut["input_ids"], tokenizer(ROWS["sentence"], padding=True, return_tensors="pt")["input_ids"])


class Rated(Films):
    """The labels of the sentences are those of the hyperparameter `labels`."""

    def training_data(self) -> Any:
        labels = np.array(self.hparam("labels", None))
        table = trek.data.Table.of({"sentence": ROWS["sentence"], "label": labels})
        return tokenize(table, self.tokenizer(), text="sentence", max_length=8)

    validation_data = training_data


def fit_rated(encoder: Path, labels: list[Any], *, trial: type[Rated] = Rated, epochs: int = 15, **hparams: Any) -> Any:
    values = {"model": str(encoder), "global_batch_size": 8, "learning_rate": 0.01, "labels": labels * 4, **hparams}
    return trek.fit(trial, hparams=values, max_length=trek.epochs(epochs), show_progress=False)


def test_numbers_are_fitted_as_numbers(encoder: Path) -> None:
    result = fit_rated(encoder, [0.9, 0.2, 1.0, 0.1, 0.8, 0.3, 0.85, 0.25], num_labels=1)
    assert set(result.best) >= {"mse", "mae"}
    assert "accuracy" not in result.best
    assert result.best["mse"] == pytest.approx(result.best["validation_loss"], abs=1e-6)
    assert 0 < result.best["mse"] < 0.02


@pytest.mark.parametrize(
    ("labels", "settings", "metrics"),
    [
        ([1, 5, 2, 4, 1, 5, 3, 3], {"num_labels": 1}, {"mse", "mae"}),
        ([[0.5, 1.5]] * 8, {"problem_type": "regression"}, {"mse", "mae"}),
        ([[1, 0, 1], [0, 1, 0]] * 4, {"num_labels": 3}, {"label_accuracy"}),
        ([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]] * 4, {"num_labels": 3}, {"label_accuracy"}),
        ([[1, 0, 0, 0, 0, 0, 0, 1]] * 8, {"num_labels": 8}, {"label_accuracy"}),
        ([[True, False]] * 8, {}, {"label_accuracy"}),
        ([1, 0] * 4, {"num_labels": 1, "problem_type": "multi_label_classification"}, {"label_accuracy"}),
        ([[1], [0]] * 4, {}, {"accuracy"}),
        ([True, False] * 4, {}, {"accuracy"}),
    ],
)
def test_labels_of_every_kind_reach_the_loss_that_takes_them(
    encoder: Path, labels: list[Any], settings: dict[str, Any], metrics: set[str]
) -> None:
    best = fit_rated(encoder, labels, epochs=1, **settings).best
    assert {"mse", "mae", "label_accuracy", "accuracy"} & set(best) == metrics


def test_labels_that_do_not_fit_the_model_are_refused(encoder: Path) -> None:
    with pytest.raises(InputError, match=r"labels of 2 classes must be one integer per row, got torch\.float32"):
        fit_rated(encoder, [0.5] * 8)
    with pytest.raises(InputError, match=r"with num_labels 3 must be of shape \(8, 3\), got \(8, 2\)"):
        fit_rated(encoder, [[0, 1]] * 8, num_labels=3)
    with pytest.raises(InputError, match=r"'regression' with num_labels 2 must be of shape \(8, 2\), got \(8,\)"):
        fit_rated(encoder, [0.5] * 8, problem_type="regression")
    with pytest.raises(ConfigError, match=r"problem_type 'guess' does not exist\. Use one of: single_label"):
        fit_rated(encoder, [1] * 8, problem_type="guess")
    with pytest.raises(ConfigError, match="needs a model for the task 'sequence-classification', got BertForMaskedLM"):
        fit_rated(encoder, [1] * 8, problem_type="regression", task="masked-lm")


class Tagged(Rated):
    """A label for each token."""

    def training_data(self) -> Any:
        return super().training_data().map(lambda batch: {**batch, "label": np.asarray(batch["input_ids"]) % 2})

    validation_data = training_data


def test_labels_of_tokens_are_cut_with_their_tokens(encoder: Path) -> None:
    best = fit_rated(encoder, [0] * 8, trial=Tagged, task="token-classification").best
    assert best["validation_loss"] < 0.2
    assert "accuracy" not in best


def test_the_rate_grows_and_falls_to_nothing() -> None:
    factor = linear_schedule(10, warmup=0.2)
    assert [round(factor(step), 3) for step in (0, 1, 2, 6, 10, 11)] == [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]
    with pytest.raises(ConfigError, match="warmup must be a share"):
        linear_schedule(10, warmup=2)


def test_an_unknown_task_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="task 'poetry' does not exist"):
        fit(folder, task="poetry")
