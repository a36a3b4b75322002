"""`pq.io`: tensors, models and weights in files whose names tell what they are.

`data/train_tensor_20210101.pt`, `data/model_20210101.pt`, `data/state_dict_e0_20210101.pt`: the date is
`args.data_date`, by default today. Files are written by one process, whole or not at all, and never run code when they
are loaded.
"""

from __future__ import annotations

import json
import os
from argparse import Namespace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present
from torch.utils.data import TensorDataset

import trek
from trek.errors import InputError

_SUFFIXES = {"preds": ".csv", "confusion": ".png", "test_array": ".npy"}
_WITHOUT_TENSOR = ("state_dict", "model", *_SUFFIXES)


def id_str(
    ftype: str,
    args: Namespace,
    epoch: int | str | None = None,
    gpu: int | str | None = None,
    suffix: str = ".pt",
) -> Path:
    """The file of a kind: `state_dict` (with `epoch`), `train`, `valid`, `test`, `model`, `preds`, `confusion`.

    It lies in `data` below `args.base_dir` (by default the current directory), and there in `args.bert_type` and
    `args.source` if they are set, which may be paths, of which the last part counts.
    """
    kind = ftype if ftype in _WITHOUT_TENSOR else f"{ftype}_tensor"
    labels = "".join(map(str, getattr(args, "labels", "")))
    when = f"e{epoch}" if ftype == "state_dict" else epoch
    day = getattr(args, "data_date", date.today().strftime("%Y%m%d"))
    name = "_".join(str(part) for part in (kind, labels, when, day, gpu) if part not in (None, ""))
    places = [getattr(args, name, None) for name in ("bert_type", "source")]
    below = [Path(place).name for place in places if place]
    folder = Path(getattr(args, "base_dir", Path.cwd())).joinpath("data", *below)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}{_SUFFIXES.get(ftype, suffix)}"


def load_torch_object(
    torch_type: str, args: Namespace, epoch: int | str | None = None, location: bool = False, lock: bool = False
) -> Any:
    """What is in the file of a kind; with `location`, the file's path instead. `lock` has no meaning here."""
    path = id_str(torch_type, args, epoch)
    if location:
        return path
    if not path.is_file():
        raise InputError(f"{path} not found. Write it, or set args.data_date to the date in the file's name.")
    with torch.serialization.safe_globals([TensorDataset]):
        return torch.load(path, map_location="cpu", weights_only=True)


def load_tensor(ttype: str, args: Namespace, loc_only: bool = False) -> Any:
    """The tensors called `ttype`: `train`, `valid` or `test`."""
    return load_torch_object(ttype, args, location=loc_only)


def load_state_dict(args: Namespace, epoch: int | str, folder: Path) -> dict[str, torch.Tensor]:
    """The weights after an epoch: from `folder` if they are there, or else from where `save_state_dict` wrote them."""
    moved = folder / id_str("state_dict", args, epoch).name
    weights: dict[str, torch.Tensor] = (
        torch.load(moved, map_location="cpu", weights_only=True)
        if moved.is_file()
        else load_torch_object("state_dict", args, epoch)
    )
    return weights


def save_state_dict(model: nn.Module, args: Namespace, epoch: int | str) -> Path:
    """Write the weights of a model after an epoch; the file. Only the first of several processes writes it."""
    path = id_str("state_dict", args, epoch)
    if trek.World.from_env().is_leader:
        weights = {name: value.detach().cpu() for name, value in model.state_dict().items()}
        consume_prefix_in_state_dict_if_present(weights, "module.")
        _save(weights, path)
    return path


def save_test_array(Xte: np.ndarray, yte: np.ndarray, args: Namespace) -> None:  # noqa: N803 - their name
    """Keep the rows that were set aside for a test, and their labels."""
    both = np.column_stack([np.asarray(Xte), np.asarray(yte)])
    np.save(id_str("test_array", args), both.astype(str) if both.dtype == object else both, allow_pickle=False)


def load_test_array(args: Namespace) -> tuple[np.ndarray, np.ndarray]:
    """What `save_test_array` kept: the rows, and the labels."""
    both = np.load(id_str("test_array", args), allow_pickle=False)
    return both[:, :-1], both[:, -1]


def serve_str(base_path: Path | None = None, model_name: str | None = None) -> Path:
    """The folder for what is served."""
    folder = Path(base_path or Path.cwd()) / "serve"
    return folder / model_name if model_name else folder


def json_write(serve_path: Path, filename: str, data: Any) -> None:
    """Write a JSON file."""
    Path(serve_path).mkdir(parents=True, exist_ok=True)
    (Path(serve_path) / filename).write_text(json.dumps(data))


def _save(value: Any, path: Path) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    torch.save(value, partial)
    partial.replace(path)
