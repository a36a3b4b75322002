"""Hugging Face: tokenise Tables, fine-tune `transformers` models as Trials, save them with `save_pretrained`.

Needs the `hf` extra. Models and tokenizers are loaded by transformers, from a folder or by name; code that comes with a
model is never run (`trust_remote_code` stays off), and weights are read from safetensors alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from trek.data import Table
from trek.data.loaders import DataLoader
from trek.distribution import package_missing
from trek.errors import ConfigError, InputError
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.checkpointing.loading import load_trial
from trek.train.trial import Trial

TASKS = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
}
_LABELS = ("label", "labels")


def load_tokenizer(model: str | Path, **settings: Any) -> Any:
    """The tokenizer of a model: a folder or a name. `settings` are those of `from_pretrained`."""
    return _transformers().AutoTokenizer.from_pretrained(str(model), **settings)


def load_model(model: str | Path, *, task: str = "sequence-classification", **settings: Any) -> Any:
    """A pretrained model with the head of a task, a key of TASKS; weights come from safetensors alone."""
    if task not in TASKS:
        raise ConfigError(f"task {task!r} does not exist. Use one of: {', '.join(TASKS)}.")
    return getattr(_transformers(), TASKS[task]).from_pretrained(str(model), use_safetensors=True, **settings)


def as_table(data: Any) -> Table:
    """A `datasets.Dataset` as a Table, without a copy of its columns; a Table stays as it is."""
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping) and hasattr(data, "column_names"):
        raise InputError(f"expected one split of a {type(data).__name__}. Pass one of: {', '.join(map(repr, data))}.")
    if not (hasattr(data, "with_format") and hasattr(data, "column_names")):
        raise InputError(f"expected a trek.data.Table or a datasets.Dataset, got {type(data).__name__}.")
    if not hasattr(data, "__len__"):
        raise InputError(f"expected a datasets.Dataset, got a {type(data).__name__}. Load it without streaming=True.")
    return Table.of(data.with_format("arrow")[:])


def tokenize(
    data: Any, tokenizer: Any, *, text: str | Sequence[str], max_length: int = 128, keep: Sequence[str] = ("label",)
) -> Table:
    """The Table of token ids of the column `text`, or of a pair of columns; the columns in `keep` stay.

    Every row has `max_length` ids, so that batches are plain tensors; `trim` cuts a batch to its longest row.
    """
    table, columns = as_table(data), [text] if isinstance(text, str) else list(text)
    for column in (*columns, *keep):
        if column not in table.columns:
            raise InputError(f"column {column!r} not found. The data has: {', '.join(table.columns)}.")

    def to_ids(batch: Mapping[str, Any]) -> dict[str, Any]:
        texts = [[str(one) for one in batch[column]] for column in columns]
        encoded = tokenizer(*texts, padding="max_length", truncation=True, max_length=max_length, return_tensors="np")
        kept = {name: np.asarray(batch[name]) for name in keep}
        return {**{name: np.asarray(ids, dtype=np.int32) for name, ids in encoded.items()}, **kept}

    return table.map(to_ids)


def trim(batch: Mapping[str, torch.Tensor], *, keep: Sequence[str] = ()) -> dict[str, torch.Tensor]:
    """The batch without the padding that all of its rows share, on either side; ids as torch wants them.

    Every tensor with a value per token is cut, and none without an `attention_mask`. The columns in `keep` have no
    value per token, however wide they are. Floats stay floats, of torch's default type.
    """
    mask = batch.get("attention_mask")
    if mask is None or not mask.any():
        return {name: _as_torch_wants(value) for name, value in batch.items()}
    used = mask.any(0).nonzero()
    begin, end, width = int(used[0]), int(used[-1]) + 1, mask.shape[1]
    return {
        name: _as_torch_wants(
            value[:, begin:end] if name not in keep and value.ndim > 1 and value.shape[1] == width else value
        )
        for name, value in batch.items()
    }


def _as_torch_wants(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.get_default_dtype()) if value.is_floating_point() else value.long()


class HuggingFaceTrial(Trial):
    """Fine-tunes a `transformers` model. Override `training_data` and `validation_data`, and `model` where it is made.

    Hyperparameters: `model` (a folder or a name), `global_batch_size`; optional: `task` (a key of TASKS, by default
    "sequence-classification"), `num_labels` (2), `problem_type` (a key of PROBLEMS), `learning_rate` (5e-5),
    `weight_decay` (0.01), `warmup` (the share of the steps in which the rate grows, 0.1), `max_length` (128), `lora`
    (settings of `peft.LoraConfig`, such as `{r: 8}`).

    Without a `problem_type`, a model with one label is a regression, labels with a value per class are of several
    classes at once, and other labels are the number of a class.
    """

    def hparam(self, name: str, default: Any) -> Any:
        """A hyperparameter that need not be there."""
        return self.context.get_hparams().get(name, default)

    def training_data(self) -> Any:
        """Tokenised rows with `label` or `labels`: see `tokenize`."""
        raise NotImplementedError

    def validation_data(self) -> Any:
        """The same for validation."""
        raise NotImplementedError

    def tokenizer(self) -> Any:
        """The model's own."""
        return load_tokenizer(self.context.get_hparam("model"))

    def model(self) -> nn.Module:
        """The model with the head of its task."""
        task = self.hparam("task", "sequence-classification")
        labels = {"num_labels": self.hparam("num_labels", 2)} if task.endswith("classification") else {}
        model: nn.Module = load_model(self.context.get_hparam("model"), task=task, **labels)
        return model

    def build_model(self) -> nn.Module:
        """With adapters where `lora` is set; everything else is then left as it is."""
        lora, problem = self.hparam("lora", None), self.hparam("problem_type", None)
        model: Any = self.model()
        if problem is not None:
            _check_problem(problem, model)
            model.config.problem_type = problem
        made: nn.Module = model if lora is None else with_lora(model, **lora)
        return made

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW, without decay of biases and norms."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        decay = self.hparam("weight_decay", 0.01)
        groups = [
            {"params": [one for one in trained if one.ndim > 1], "weight_decay": decay},
            {"params": [one for one in trained if one.ndim <= 1], "weight_decay": 0.0},
        ]
        is_cuda = self.context.device.type == "cuda"
        return torch.optim.AdamW(groups, lr=self.hparam("learning_rate", 5e-5), fused=is_cuda or None)

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        """Linear growth, then linear decay to 0 at the end of the run."""
        total, share = self._num_steps(), self.hparam("warmup", 0.1)
        return torch.optim.lr_scheduler.LambdaLR(optimizer, linear_schedule(total, warmup=share)), "step"

    def _num_steps(self) -> int:
        length, size = self.context.traveler.settings.max_length, self.context.get_global_batch_size()
        rows = len(self._training_rows)
        if length is None:
            return max(1, math.ceil(rows / size))
        steps = length.to_batches(batch_records=size, epoch_batches=math.ceil(rows / size))
        return max(1, steps // self.context.traveler.settings.accumulate)

    @cached_property
    def _training_rows(self) -> Table:
        return as_table(self.training_data()).cache()

    @cached_property
    def _validation_rows(self) -> Table:
        return as_table(self.validation_data()).cache()

    def build_training_data_loader(self) -> Any:
        """Shuffled."""
        return DataLoader(self._training_rows, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> Any:
        """In order."""
        return DataLoader(self._validation_rows, batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch: Sequence[torch.Tensor], model: nn.Module) -> dict[str, Any]:
        """The model's own loss."""
        inputs, _ = _inputs_and_problem(batch, self._training_rows.columns, model)
        return {"loss": model(**inputs).loss}

    def evaluate_batch(self, batch: Sequence[torch.Tensor], model: nn.Module) -> dict[str, Any]:
        """The loss, and for whole sequences what their labels allow.

        The `accuracy` of one class, the `label_accuracy` of several at once (the share of all labels that are right),
        the `mse` and `mae` of a regression.
        """
        inputs, problem = _inputs_and_problem(batch, self._validation_rows.columns, model)
        out = model(**inputs)
        measured = {} if problem is None else PROBLEMS[problem](out.logits.float(), inputs["labels"])
        return {"validation_loss": out.loss, **measured}

    def predict_batch(self, batch: Sequence[Any], model: nn.Module) -> dict[str, torch.Tensor]:
        """The logits of tokenised rows."""
        return {"logits": model(**_without_labels(batch, self._training_rows.columns)).logits}


def _without_labels(batch: Sequence[Any], columns: Sequence[str]) -> dict[str, torch.Tensor]:
    """Untrimmed, so that the answer to a row does not depend on the others."""
    pairs = zip(columns, batch, strict=True)
    return {name: _as_torch_wants(value) for name, value in pairs if name not in _LABELS}


def model_inputs(
    batch: Sequence[torch.Tensor], columns: Sequence[str], *, keep: Sequence[str] = ()
) -> dict[str, torch.Tensor]:
    """A batch of a tokenised Table with these `columns` as keywords of a transformers model.

    Trimmed but for the columns in `keep`, and with `label` as `labels`.
    """
    inputs = trim(dict(zip(columns, batch, strict=True)), keep=keep)
    if "label" in inputs:
        inputs["labels"] = inputs.pop("label")
    if "labels" not in inputs:
        raise InputError(f"a batch needs a column 'label' or 'labels', got {sorted(inputs)}.")
    return inputs


def _inputs_and_problem(
    batch: Sequence[torch.Tensor], columns: Sequence[str], model: Any
) -> tuple[dict[str, torch.Tensor], str | None]:
    """The keywords of the model, and which of PROBLEMS its labels are; None where every token has one."""
    if not _has_sequence_head(model):
        inputs = model_inputs(batch, columns)
        return inputs, "single_label_classification" if inputs["labels"].ndim == 1 else None
    inputs = model_inputs(batch, columns, keep=_LABELS)
    num_labels = model.config.num_labels
    problem = model.config.problem_type or _problem_of(inputs["labels"], num_labels=num_labels)
    inputs["labels"] = _labels_for(problem, inputs["labels"], num_labels=num_labels)
    return inputs, problem


def _has_sequence_head(model: Any) -> bool:
    """transformers names a model by its head."""
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    return any(kind.__name__.endswith("ForSequenceClassification") for kind in type(bare).__mro__)


def _check_problem(problem: str, model: Any) -> None:
    if problem not in PROBLEMS:
        raise ConfigError(f"problem_type {problem!r} does not exist. Use one of: {', '.join(PROBLEMS)}.")
    if not _has_sequence_head(model):
        raise ConfigError(
            f"problem_type {problem!r} needs a model for the task 'sequence-classification', got "
            f"{type(model).__name__}. Remove problem_type."
        )


def _problem_of(labels: torch.Tensor, *, num_labels: int) -> str:
    """As transformers decides, but by the shape of the labels: integers may mark several classes too."""
    if num_labels == 1:
        return "regression"
    return "single_label_classification" if labels.numel() == len(labels) else "multi_label_classification"


def _labels_for(problem: str, labels: torch.Tensor, *, num_labels: int) -> torch.Tensor:
    """Labels of the type and the shape that the loss of a problem takes."""
    if problem == "single_label_classification":
        if labels.is_floating_point() or labels.numel() != len(labels):
            raise InputError(
                f"labels of {num_labels} classes must be one integer per row, got {labels.dtype} of shape "
                f"{tuple(labels.shape)}. To fit numbers, set num_labels to 1."
            )
        return labels.reshape(-1)
    expected = (len(labels),) if num_labels == 1 else (len(labels), num_labels)
    if labels.numel() != math.prod(expected):
        raise InputError(
            f"labels of problem_type {problem!r} with num_labels {num_labels} must be of shape {expected}, got "
            f"{tuple(labels.shape)}. Set num_labels to how many labels a row has."
        )
    shape = (len(labels), 1) if problem == "multi_label_classification" and num_labels == 1 else expected
    return labels.to(torch.get_default_dtype()).reshape(shape)


def _measure_class(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"accuracy": (logits.argmax(-1) == labels).float().mean()}


def _measure_several_classes(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"label_accuracy": ((logits > 0) == (labels > 0.5)).float().mean()}


def _measure_regression(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    error = logits.reshape(labels.shape) - labels
    return {"mse": error.square().mean(), "mae": error.abs().mean()}


PROBLEMS = {
    "single_label_classification": _measure_class,
    "multi_label_classification": _measure_several_classes,
    "regression": _measure_regression,
}
"""What the labels of whole sequences may be, by transformers' names, with the metrics of each."""


def linear_schedule(num_steps: int, *, warmup: float) -> Callable[[int], float]:
    """The factor of the learning rate at each step."""
    if not 0 <= warmup < 1:
        raise ConfigError(f"warmup must be a share of the steps from 0 to below 1, got {warmup!r}.")
    rising = int(num_steps * warmup)

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / rising
        return max(0.0, (num_steps - step) / max(1, num_steps - rising))

    return factor


def with_lora(model: nn.Module, **settings: Any) -> nn.Module:
    """The model with LoRA adapters, which alone are trained. Needs `peft`."""
    if find_spec("peft") is None:
        raise package_missing("lora", "peft", extra="hf")
    import peft

    task = "CAUSAL_LM" if hasattr(model, "lm_head") else "SEQ_CLS" if hasattr(model, "classifier") else None
    try:
        config = peft.LoraConfig(**{"task_type": task, **settings})
        made: nn.Module = peft.get_peft_model(model, config)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"invalid settings of lora {settings!r}: {error}.") from error
    return made


def save_pretrained(
    checkpoint: CheckpointFolder,
    folder: Path | str,
    *,
    trial_class: type[Trial] | None = None,
    tokenizer: Any = None,
) -> Path:
    """Write the checkpoint's model, and its tokenizer, as `from_pretrained` reads them. Adapters are merged.

    The tokenizer is that of the Trial, if its hyperparameter `model` names a model, unless another one is given.
    """
    loaded = load_trial(checkpoint, trial_class)
    model: Any = loaded.model
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    if not hasattr(model, "save_pretrained"):
        raise InputError(f"the model of {checkpoint.path} is a {type(model).__name__}, not one of transformers.")
    model.save_pretrained(str(folder))
    if tokenizer is None and isinstance(loaded.trial, HuggingFaceTrial) and loaded.trial.hparam("model", None):
        tokenizer = loaded.trial.tokenizer()
    if tokenizer is not None:
        tokenizer.save_pretrained(str(folder))
    return Path(folder)


def _transformers() -> Any:
    if find_spec("transformers") is None:
        raise package_missing("a Hugging Face model", "transformers", extra="hf")
    import transformers

    return transformers
