"""`trek.serve.archive`: a model as one file, in the format of TorchServe's archives.

MAR-INF/MANIFEST.json    what TorchServe reads first
trek_handler.py          what it calls
model-config.yaml        how it runs it
trek.json                how the model is opened, its name and version
checkpoint/              of a checkpoint: the weights and what builds the model; no optimizer, no pickle
code/                    of a checkpoint: the Python files of the model
config.json, …           of a folder that `save_pretrained` wrote: its files, without pickles
index_to_name.json       names of classes, if there are any
sample.json              a request with made-up values
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from trek._version import __version__
from trek.errors import InputError
from trek.serve.handlers.archive_handler import FACTS, LABELS, ArchiveHandler
from trek.serve.handlers.base import Handler
from trek.serve.handlers.model_code import code_files, import_trial
from trek.serve.handlers.trial_handler import TrialHandler
from trek.serve.model_source import ModelSource, model_files
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, model_file, open_checkpoint
from trek.train.checkpointing.manifest import checksum, write_manifest
from trek.train.checkpointing.stores import MANIFEST

HANDLER = "trek_handler.py"
_HANDLER_CODE = '''"""Called by TorchServe; Trek must be installed where it runs."""

from trek.serve.torchserve_handler import TrekHandler

_service = TrekHandler()


def handle(data, context):
    """Answer a batch of requests."""
    return _service.handle(data, context)
'''
_CONFIG = {"minWorkers": 1, "maxWorkers": 1, "batchSize": 8, "maxBatchDelay": 1, "responseTimeout": 120}


def archive(
    model: Any,
    output: Path | str,
    *,
    name: str | None = None,
    version: str = "1.0",
    labels: Mapping[str, str] | Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    code: Path | str | None = None,
    trial: str = "",
    overwrite: bool = False,
) -> Path:
    """Pack a checkpoint with its code, or a folder of transformers, into the archive `output`, and return its path.

    `labels` are the names of classes, in order or by index. `config` are settings of TorchServe, such as `maxWorkers`.
    The model is loaded first, so an archive that exists can be served.
    """
    target = Path(output)
    if target.suffix != ".mar":
        raise InputError(f"an archive must be called something.mar, got {str(target)!r}.")
    if target.exists() and not overwrite:
        raise InputError(f"{str(target)!r} exists already. Choose another file, or pass overwrite (--overwrite).")
    source = ModelSource.parse(model, code=code, trial=trial)
    if source.kind not in _PACKERS:
        raise InputError(
            f"only checkpoints and folders that save_pretrained wrote can be archived, got {str(source)!r}."
        )
    with tempfile.TemporaryDirectory() as folder:
        packed = _PACKERS[source.kind](source, Path(folder))
        facts = {**packed.facts, "name": name or target.stem, "version": version, "trek": __version__}
        texts = {
            "MAR-INF/MANIFEST.json": json.dumps(_mar_manifest(facts["name"], version), indent=1),
            HANDLER: _HANDLER_CODE,
            "model-config.yaml": yaml.safe_dump({**_CONFIG, **(config or {})}),
            FACTS: json.dumps(facts, indent=1),
            "sample.json": json.dumps(packed.sample),
        }
        if labels is not None:
            texts[LABELS] = json.dumps(_named(labels, packed.num_classes))
        _write(target, texts, packed.files)
    return target


@dataclass(frozen=True)
class _Packed:
    """What an archive holds of a model."""

    facts: dict[str, Any]
    """How the model is opened."""
    sample: dict[str, Any]
    files: dict[str, Path]
    num_classes: int | None
    """None of a model that is no classifier."""


def _pack_checkpoint(source: ModelSource, folder: Path) -> _Packed:
    checkpoint = open_checkpoint(source.address)
    handler = TrialHandler.open(source, device="cpu")
    trial_class = import_trial(checkpoint, source)
    _write_weights(checkpoint, folder)
    files = {f"code/{name}": path for name, path in code_files(trial_class.__module__, Path(source.code)).items()}
    files |= {f"checkpoint/{path.name}": path for path in sorted(folder.iterdir())}
    return _Packed(
        {"trial": f"{trial_class.__module__}:{trial_class.__qualname__}"},
        make_sample(handler),
        files,
        _num_classes(handler),
    )


def _pack_pretrained(source: ModelSource, folder: Path) -> _Packed:
    """Its files as they are."""
    from trek.serve.handlers.pretrained_handler import PretrainedHandler

    root = Path(source.address)
    handler = PretrainedHandler.of_folder(root, device="cpu")
    files = {path.name: path for path in model_files(root)}
    return _Packed({}, make_sample(handler), files, _num_classes(handler))


_PACKERS: dict[str, Callable[[ModelSource, Path], _Packed]] = {
    "checkpoint": _pack_checkpoint,
    "pretrained": _pack_pretrained,
}


def make_sample(handler: Any) -> dict[str, Any]:
    """A record that the model takes: zeros, and empty texts."""
    import numpy as np

    sample: dict[str, Any] = {}
    for spec in handler.inputs or ():
        sample[spec.name] = "" if spec.dtype == "text" else np.zeros(spec.shape, dtype=spec.dtype).tolist()
    return sample


def _mar_manifest(name: str, version: str) -> dict[str, Any]:
    model = {"modelName": name, "modelVersion": version, "handler": HANDLER, "configFile": "model-config.yaml"}
    created = datetime.now(UTC).strftime("%d/%m/%Y %H:%M:%S")
    return {"createdOn": created, "runtime": "python", "model": model, "archiverVersion": "0.12.0"}


def _num_classes(handler: Handler) -> int | None:
    outputs = ArchiveHandler(handler, labels={}).outputs or ()
    return next((spec.shape[0] for spec in outputs if spec.name == "logits"), None)


def _named(labels: Mapping[str, str] | Sequence[str], num_classes: int | None) -> dict[str, str]:
    pairs = labels.items() if isinstance(labels, Mapping) else enumerate(labels)
    named = {str(index): str(label) for index, label in pairs}
    if not all(index.isdigit() for index in named):
        raise InputError(f"labels must be named by the index of their class, got {sorted(named)[:5]}.")
    if num_classes is None:
        raise InputError("labels are names of classes, but the model has not one output with a row of numbers.")
    odd = next((one for one in range(num_classes) if str(one) not in named), None)
    if odd is not None or len(named) > num_classes:
        raise InputError(
            f"there are {len(named)} labels, but the model has {num_classes} classes. Name each of them, by its index "
            f"from 0 to {num_classes - 1}."
        )
    return named


def _write(target: Path, texts: Mapping[str, str], files: Mapping[str, Path]) -> None:
    half = target.with_name(f".{target.name}.half")
    with half.open("wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for member, text in texts.items():
                packed.writestr(member, text)
            for member, path in ((member, path) for member, path in files.items() if member not in texts):
                is_weights = path.suffix == ".safetensors"  # which hardly become smaller
                packed.write(path, member, zipfile.ZIP_STORED if is_weights else None)
        file.flush()
        os.fsync(file.fileno())
    half.rename(target)


def _write_weights(checkpoint: CheckpointFolder, folder: Path) -> None:
    """The checkpoint without what only training needs, with the weights that validations used."""
    from safetensors.torch import save_file

    num_models = sum(name.startswith("model") for name in checkpoint.manifest["files"])
    for index in range(num_models):
        weights = checkpoint.state_dict(index, averaged=checkpoint.has_averages)
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / model_file(index))
    (folder / "state.json").write_text(json.dumps({"optimization": {"emas": []}}))
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": checksum(path)}
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST
    }
    kept = {name: checkpoint.manifest[name] for name in ("uuid", "batches", "metrics", "trial", "time_s")}
    write_manifest(folder, {**kept, "world_size": 0, "files": files})
