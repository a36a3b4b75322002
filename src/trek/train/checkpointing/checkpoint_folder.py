"""CheckpointFolder: a folder with the saved state of a run. Reads, verifies and finds checkpoints; does not write them.

    manifest.json        format, position, metrics, and the size and SHA-256 of every other file
    model.safetensors    the weights; further models of the run in model_1.safetensors, …
    state.json           optimizers, schedulers, scaler, position, callbacks: a tree whose tensors are in
    state.safetensors
    rank_0.json          the state of one rank: random states, accumulated gradients, metric sums
    rank_0.safetensors

It contains no pickle.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.errors import CheckpointError, InputError, TrekError
from trek.train.checkpointing.stores import MANIFEST, Storage, open_storage
from trek.train.checkpointing.tree import decode
from trek.world.urls import is_remote, local_path

if TYPE_CHECKING:
    import torch
    from torch import nn

    from trek.train.trial import Trial

FORMAT = 1
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunState:
    """The content of a checkpoint as Python values."""

    models: list[dict[str, torch.Tensor]]
    shared: dict[str, Any]
    ranks: list[dict[str, Any]]


class CheckpointFolder:
    """One checkpoint on this machine."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.manifest = _read_manifest(self.path)

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"

    @property
    def uuid(self) -> str:
        """Its unique id."""
        return str(self.manifest["uuid"])

    @property
    def batches(self) -> int:
        """Number of batches trained when it was saved."""
        return int(self.manifest["batches"])

    @property
    def metrics(self) -> dict[str, float]:
        """Validation metrics at that point."""
        return dict(self.manifest["metrics"])

    @property
    def has_averages(self) -> bool:
        """Whether it holds moving averages of the weights, which the run used for validation."""
        return bool(json.loads((self.path / "state.json").read_text())["optimization"]["emas"])

    def state_dict(self, model: int = 0, *, averaged: bool = False) -> dict[str, torch.Tensor]:
        """The weights of the run's `model`-th model, or their moving averages, on the CPU."""
        from safetensors.torch import load_file

        weights: dict[str, torch.Tensor] = load_file(self.path / model_file(model))
        if averaged:
            if not self.has_averages:
                raise InputError(
                    f"checkpoint {self.path} has no moving averages. Train with ema_decay, or load the weights."
                )
            weights.update(self._tree("state")["optimization"]["emas"][model]["averages"])
        return weights

    def load_model(self, trial_class: type[Trial] | None = None) -> nn.Module:
        """The trained model in evaluation mode; see `trek.train.checkpointing.loading`."""
        from trek.train.checkpointing.loading import load_model

        return load_model(self, trial_class)

    def check_owner(self, owner: str | None) -> None:
        """Raise `CheckpointError` if another than `owner` has written it; None accepts all."""
        if owner is not None and self.manifest.get("owner", "") != owner:
            raise CheckpointError(f"checkpoint {self.path} was written by another trial.")

    def verify(self) -> None:
        """Raise `CheckpointError` unless every file exists with the size and checksum given in the manifest."""
        for name, facts in self.manifest["files"].items():
            path = self.path / name
            if not path.is_file() or path.stat().st_size != facts["bytes"]:
                raise CheckpointError(f"checkpoint {self.path} is incomplete: {name} is missing or has the wrong size.")
            if checksum(path) != facts["sha256"]:
                raise CheckpointError(f"checkpoint {self.path} is damaged: {name} does not match its checksum.")

    def read(self) -> RunState:
        """Verify the checkpoint and read everything."""
        self.verify()
        files = self.manifest["files"]
        models = [self.state_dict(i) for i in range(sum(name.startswith("model") for name in files))]
        ranks = [self._tree(f"rank_{rank}") for rank in range(self.manifest["world_size"])]
        return RunState(models=models, shared=self._tree("state"), ranks=ranks)

    def _tree(self, stem: str) -> dict[str, Any]:
        from safetensors.torch import load_file

        tensors = load_file(self.path / f"{stem}.safetensors")
        tree: dict[str, Any] = decode(json.loads((self.path / f"{stem}.json").read_text()), tensors)
        return tree


def open_checkpoint(place: Path | str) -> CheckpointFolder:
    """The checkpoint in a folder, or at a URL that a checkpoint store can open."""
    parent, _, name = str(place).rstrip("/").rpartition("/")
    if not is_remote(parent):
        return CheckpointFolder(local_path(place))
    try:
        return CheckpointFolder(open_storage(parent).fetch(name))
    except FileNotFoundError:
        raise CheckpointError(f"{place} is not a checkpoint: it does not exist.") from None
    except TrekError:
        raise
    except Exception as error:  # every store has its own exceptions
        raise CheckpointError(
            f"{place} cannot be fetched: {str(error).rstrip('.')}. Check the URL and the credentials for its store."
        ) from error


def find_latest(storage: Storage, *, owner: str | None = None) -> CheckpointFolder | None:
    """The newest complete checkpoint, of `owner` if there is one; others are skipped with a warning."""
    for name in reversed(storage.names()):
        try:
            checkpoint = CheckpointFolder(storage.fetch(name))
            checkpoint.check_owner(owner)
            checkpoint.verify()
        except (CheckpointError, FileNotFoundError) as error:
            logger.warning("skipping a checkpoint: %s", error)
        else:
            return checkpoint
    return None


def model_file(index: int) -> str:
    """The file name of the run's `index`-th model."""
    return f"model_{index}.safetensors" if index else "model.safetensors"


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        version = manifest["format"]
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {MANIFEST}.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the manifest of checkpoint {path} cannot be read: {error}.") from error
    if version != FORMAT:
        raise CheckpointError(
            f"checkpoint {path} has format {version}, but this version of Trek reads format {FORMAT}. "
            "Use the version of Trek that wrote it."
        )
    return manifest
