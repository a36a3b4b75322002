"""`pq.bert`: the names that pytorch-quik had before `pq.hugging`, with the labels first."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trek.compat.pytorch_quik import hugging

__all__ = [
    "get_bert_info",
    "get_encodings",
    "get_pretrained_model",
    "get_tokenizer",
    "save_bert_model",
    "save_tokenizer",
]


def get_bert_info(labels: Any, bert_type: str = "bert") -> dict[str, Any]:
    """See `pq.hugging.model_info`."""
    return hugging.model_info(bert_type, labels)


def get_pretrained_model(labels: Any, bert_type: str = "bert") -> Any:
    """See `pq.hugging.get_pretrained_model`."""
    return hugging.get_pretrained_model(bert_type, labels)


def get_tokenizer(bert_type: str = "bert", cache_dir: str | None = None) -> Any:
    """See `pq.hugging.get_tokenizer`."""
    return hugging.get_tokenizer(bert_type, cache_dir)


def save_tokenizer(tokenizer: Any, data_path: Path | str) -> Path:
    """See `pq.hugging.save_tokenizer`."""
    return hugging.save_tokenizer(tokenizer, data_path)


def get_encodings(array_list: Sequence[Any], idx: int, bert_type: str = "bert", tokenizer: Any = None) -> list[Any]:
    """See `pq.hugging.get_encodings`."""
    return hugging.get_encodings(array_list, idx, bert_type, tokenizer)


def save_bert_model(model: Any, args: Namespace, best_epoch: int | str, serve_path: Path | str | None = None) -> Path:
    """See `pq.hugging.save_pretrained_model`."""
    return hugging.save_pretrained_model(model, args, best_epoch, serve_path)
