"""CheckpointFolder: a folder that holds a run at one moment. Reading, verifying and finding them; writing is next door.

    manifest.json        format, position, metrics, and the size and SHA-256 of every other file
    model.safetensors    the weights; further models of the run in model_1.safetensors, …
    state.json           optimizers, schedulers, scaler, position, callbacks: a tree whose tensors are in
    state.safetensors
    rank_0.json          what differs between ranks: random states, gradients half way, metric sums
    rank_0.safetensors

Nothing in it is a pickle.
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
    """Everything a checkpoint holds, as Python values."""

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
        """The name it is known by everywhere."""
        return str(self.manifest["uuid"])

    @property
    def batches(self) -> int:
        """Batches trained when it was taken."""
        return int(self.manifest["batches"])

    @property
    def metrics(self) -> dict[str, float]:
        """Validation metrics at that point."""
        return dict(self.manifest["metrics"])

    @property
    def has_averages(self) -> bool:
        """Whether the run kept moving averages of its weights, which validations were made with."""
        return bool(json.loads((self.path / "state.json").read_text())["optimization"]["emas"])

    def state_dict(self, model: int = 0, *, averaged: bool = False) -> dict[str, torch.Tensor]:
        """The weights of the run's `model`-th model, or their moving averages, on the CPU."""
        from safetensors.torch import load_file

        weights: dict[str, torch.Tensor] = load_file(self.path / model_file(model))
        if averaged:
            if not self.has_averages:
                raise InputError(
                    f"checkpoint {self.path} holds no moving averages. Train with ema_decay, or load the weights."
                )
            weights.update(self._tree("state")["optimization"]["emas"][model]["averages"])
        return weights

    def load_model(self, trial_class: type[Trial] | None = None) -> nn.Module:
        """The trained model in evaluation mode; see `trek.train.checkpointing.loading`."""
        from trek.train.checkpointing.loading import load_model

        return load_model(self, trial_class)

    def verify(self) -> None:
        """Raise `CheckpointError` unless every file is there with the size and checksum the manifest gives."""
        for name, facts in self.manifest["files"].items():
            path = self.path / name
            if not path.is_file() or path.stat().st_size != facts["bytes"]:
                raise CheckpointError(f"checkpoint {self.path} is torn: {name} is missing or has the wrong size.")
            if checksum(path) != facts["sha256"]:
                raise CheckpointError(f"checkpoint {self.path} is damaged: {name} does not match its checksum.")

    def read(self) -> RunState:
        """Verify, and read everything."""
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
    """The checkpoint in a folder, or at a URL of a store that fsspec reaches."""
    parent, _, name = str(place).rstrip("/").rpartition("/")
    if not is_remote(parent):
        return CheckpointFolder(local_path(place))
    try:
        return CheckpointFolder(open_storage(parent).fetch(name))
    except FileNotFoundError:
        raise CheckpointError(f"{place} is not a checkpoint: nothing is there.") from None
    except TrekError:
        raise
    except Exception as error:  # every store has errors of its own kind
        raise CheckpointError(
            f"{place} cannot be fetched: {str(error).rstrip('.')}. Check the URL and the credentials for its store."
        ) from error


def find_latest(storage: Storage) -> CheckpointFolder | None:
    """The newest checkpoint that is whole; torn ones are skipped with a warning."""
    for name in reversed(storage.names()):
        try:
            checkpoint = CheckpointFolder(storage.fetch(name))
            checkpoint.verify()
        except CheckpointError as error:
            logger.warning("skipping a checkpoint: %s", error)
        else:
            return checkpoint
    return None


def model_file(index: int) -> str:
    """The file of the run's `index`-th model."""
    return f"model_{index}.safetensors" if index else "model.safetensors"


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        form = manifest["format"]
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {MANIFEST}.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the manifest of checkpoint {path} cannot be read: {error}.") from error
    if form != FORMAT:
        raise CheckpointError(
            f"checkpoint {path} has format {form}, this Trek reads {FORMAT}. Use the Trek that wrote it."
        )
    return manifest
