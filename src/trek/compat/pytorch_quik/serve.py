"""`pq.serve`: a classifier of texts as an archive for TorchServe and `trek serve`, over `trek.serve.archive`.

The handler is Trek's, which answers the prediction and the logits; Trek must be installed where TorchServe runs.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import trek
from trek.compat.pytorch_quik import hugging, io
from trek.compat.pytorch_quik.utils import inverse_dict, txt_format
from trek.errors import InputError

HANDLER = "transformer_handler_pq.py"
EXTRA_FILES = ["setup_config.json", "index_to_name.json", "sample_text.json", HANDLER]
"""What `build_extra_files` writes, beside the tokenizer."""
_HANDLER_CODE = '''"""Called by TorchServe; Trek must be installed where it runs."""

from trek.serve.torchserve_handler import TrekHandler

_service = TrekHandler()


def handle(data, context):
    """Answer a batch of requests."""
    return _service.handle(data, context)
'''


def build_extra_files(args: Namespace, indexed_labels: Mapping[Any, Any], serve_path: Path | str | None = None) -> Path:
    """Write what an archive needs beside the model: EXTRA_FILES, and the tokenizer if it is not there; the folder.

    `indexed_labels` are the names of the classes by their index.
    """
    folder = Path(serve_path) if serve_path is not None else hugging.default_serve_path(args)
    is_indexed = all(isinstance(one, int) for one in indexed_labels)
    labels: Mapping[Any, Any] = indexed_labels if is_indexed else inverse_dict(indexed_labels)
    save_setup_config(folder, labels, args)
    save_index_to_name(folder, labels)
    save_sample(folder)
    save_handler(folder)
    if not (folder / "tokenizer_config.json").is_file():
        hugging.save_tokenizer(hugging.get_tokenizer(_bert_type(args)), folder)
    return folder


def save_setup_config(serve_path: Path | str, labels: Iterable[Any], args: Namespace) -> None:
    """Write `setup_config.json`: what the model is, for those who read it."""
    facts = {
        "model_name": hugging.model_info(_bert_type(args))["pretrained_model_name_or_path"],
        "mode": "sequence_classification",
        "num_labels": str(len(list(labels))),
        "save_mode": "pretrained",
        "max_length": str(hugging.BATCH_ENCODE_KWARGS["max_length"]),
    }
    io.json_write(Path(serve_path), "setup_config.json", facts)


def save_index_to_name(serve_path: Path | str, indexed_labels: Mapping[int, str]) -> None:
    """Write `index_to_name.json`: the names of the classes, which answers have."""
    names = {str(index): str(name) for index, name in indexed_labels.items()}
    io.json_write(Path(serve_path), "index_to_name.json", names)


def inference_data(data: Iterable[str]) -> str:
    """Texts as the body of a request."""
    return txt_format(data)


def save_sample(serve_path: Path | str) -> None:
    """Write `sample_text.json`: the body of a request."""
    (Path(serve_path) / "sample_text.json").write_text(inference_data(["This is a sample."]))


def save_handler(serve_path: Path | str, url: str | None = None) -> None:
    """Write the handler that TorchServe calls. Code is not fetched from a URL."""
    if url is not None:
        raise InputError(f"a handler is not downloaded, got the URL {url!r}. Put the file into {serve_path} yourself.")
    (Path(serve_path) / HANDLER).write_text(_HANDLER_CODE)


def mar_files(mar_path: Path | str, sfile: str, hfile: str) -> bool:
    """Whether everything for an archive is there: the model, the weights `sfile`, the handler `hfile`, and labels."""
    return not _missing(Path(mar_path), sfile, hfile)


def create_mar(
    args: Namespace,
    model_dir: Path | str | None = None,
    model_name: str | None = None,
    version: float | str = 1.0,
    serialized_file: str | None = None,
    handler: str = HANDLER,
) -> Path:
    """Pack `model_dir` as `model_name`.mar inside it, in place of one that is there; the file.

    The name is by default that of the model type.
    """
    folder = Path(model_dir) if model_dir is not None else hugging.default_serve_path(args)
    if handler != HANDLER:
        raise InputError(f"handler must be {HANDLER!r}, got {handler!r}. Use torch-model-archiver for others.")
    if lacking := _missing(folder, serialized_file or "model.safetensors", handler):
        raise InputError(f"{folder} has no {', '.join(lacking)}. Call save_pretrained_model and build_extra_files.")
    target = folder / f"{model_name or Path(_bert_type(args)).name}.mar"
    return trek.serve.archive(folder, target, name=target.stem, version=str(version), overwrite=True)


def _missing(folder: Path, sfile: str, hfile: str) -> list[str]:
    wanted = ("config.json", sfile, hfile, "index_to_name.json", "tokenizer_config.json")
    return [name for name in wanted if not (folder / name).is_file()]


def _bert_type(args: Namespace) -> str:
    return str(getattr(args, "bert_type", "bert"))
