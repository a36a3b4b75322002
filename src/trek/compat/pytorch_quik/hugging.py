"""`pq.hugging`: pretrained models and tokenizers, over `trek.integrations.huggingface`. Needs the `hf` extra.

A model type is `bert` or `roberta`, the name of any other model, or the folder of one.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trek.compat.pytorch_quik import io
from trek.errors import InputError
from trek.integrations.huggingface import load_model, load_tokenizer

HUGGING_MODELS = {"bert": "bert-base-uncased", "roberta": "roberta-base"}
"""Names of models by their type."""
BATCH_ENCODE_KWARGS: dict[str, Any] = {
    "add_special_tokens": True,
    "max_length": 256,
    "padding": "max_length",
    "return_attention_mask": True,
    "return_tensors": "pt",
    "truncation": True,
}
"""How texts are encoded unless told otherwise."""


def model_info(model_type: str = "bert", labels: Any = None, kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a classifier is loaded with: its name, and how many different labels there are."""
    num_labels = {} if labels is None else {"num_labels": len(np.unique(np.asarray(labels)))}
    name = HUGGING_MODELS.get(str(model_type), str(model_type))
    return {"pretrained_model_name_or_path": name, **num_labels, **(kwargs or {})}


def get_pretrained_model(model_type: str = "bert", labels: Any = None, kwargs: Mapping[str, Any] | None = None) -> Any:
    """A pretrained classifier with an output for each of the labels."""
    info = model_info(model_type, labels, kwargs)
    return load_model(info.pop("pretrained_model_name_or_path"), **info)


def get_tokenizer(
    model_type: str = "bert", cache_dir: str | None = None, kwargs: Mapping[str, Any] | None = None
) -> Any:
    """The tokenizer of a model."""
    cached = {} if cache_dir is None else {"cache_dir": cache_dir}
    return load_tokenizer(HUGGING_MODELS.get(str(model_type), str(model_type)), **cached, **(kwargs or {}))


def get_encodings(
    array_list: Sequence[Any],
    idx: int,
    bert_type: str = "bert",
    tokenizer: Any = None,
    kwargs: Mapping[str, Any] | None = None,
) -> list[Any]:
    """The encoding of the texts in column `idx` of each array: `input_ids` and `attention_mask`."""
    chosen = tokenizer or get_tokenizer(bert_type)
    how = {**BATCH_ENCODE_KWARGS, **(kwargs or {})}
    return [chosen([str(one) for one in _column(array, idx)], **how) for array in array_list]


def save_tokenizer(tokenizer: Any, serve_path: Path | str) -> Path:
    """Write a tokenizer to a folder that can be moved: without the path that it was loaded from."""
    tokenizer.save_pretrained(str(serve_path))
    return update_tokenizer_path(serve_path)


def update_tokenizer_path(serve_path: Path | str) -> Path:
    """In the config of a tokenizer, replace paths of files on this machine by their names; the config."""
    path = Path(serve_path) / "tokenizer_config.json"
    if not path.is_file():
        raise InputError(f"{path} not found. Call save_tokenizer first.")
    config = json.loads(path.read_text())
    moved = {
        name: Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
        for name, value in config.items()
    }
    path.write_text(json.dumps(moved, indent=2))
    return path


def save_pretrained_model(
    model: Any,
    args: Namespace | None = None,
    best_epoch: int | str | None = None,
    serve_path: Path | str | None = None,
    state_dict: Mapping[str, torch.Tensor] | None = None,
) -> Path:
    """Give a model the weights after an epoch, or `state_dict`, and write it as `from_pretrained` reads it; the folder.

    The weights are read from `serve_path`, where `pq.mlflow` downloads them to, or else from where `pq.io` wrote them.
    """
    folder = Path(serve_path) if serve_path is not None else default_serve_path(args or Namespace())
    weights = state_dict
    if weights is None and best_epoch is not None:
        weights = io.load_state_dict(args or Namespace(), best_epoch, folder)
    if weights is not None:
        model.load_state_dict(weights)
    model.save_pretrained(str(folder))
    return folder


def default_serve_path(args: Namespace) -> Path:
    """The folder for what is served, beside the data of these arguments."""
    return io.id_str("", args).parent / "serve"


def _column(array: Any, idx: int) -> Any:
    values = np.asarray(array)
    return values[:, idx] if values.ndim > 1 else values
