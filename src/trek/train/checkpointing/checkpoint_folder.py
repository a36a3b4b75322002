"""CheckpointFolder: a folder with the saved state of a run. Reads, verifies and finds checkpoints; does not write them.

    manifest.json        format, position, metrics, and the size and SHA-256 of every file, its own SHA-256 included
    model.safetensors    the weights; further models of the run in model_1.safetensors, …
    state.json           optimizers, schedulers, scaler, position, callbacks: a tree whose tensors are in
    state.safetensors
    rank_0.json          the state of one rank: random states, accumulated gradients, metric sums
    rank_0.safetensors

A complex type that safetensors does not have is written as pairs of real numbers, with its name in the file's metadata.
It contains no pickle. Every file is verified before it is read.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.errors import CheckpointError, InputError, TrekError
from trek.system.urls import is_remote, local_path
from trek.train.checkpointing.manifest import read_manifest, verify_files
from trek.train.checkpointing.stores import Storage, open_storage
from trek.wire.values import decode

if TYPE_CHECKING:
    import torch
    from torch import nn

    from trek.train.trial import Trial

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """The content of a checkpoint as Python values."""

    models: list[dict[str, torch.Tensor]]
    shared: dict[str, Any]
    ranks: list[dict[str, Any]]


class CheckpointFolder:
    """One checkpoint on this machine."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        self._trial_class: type[Trial] | None = None
        self._verified: dict[str, tuple[int, ...]] = {}

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
        self._verify("state.json")
        return bool(json.loads((self.path / "state.json").read_text())["optimization"]["emas"])

    def state_dict(self, model: int = 0, *, averaged: bool = False) -> dict[str, torch.Tensor]:
        """The weights of the run's `model`-th model, or their moving averages, on the CPU; verified by checksum."""
        from trek.train.checkpointing.tensor_files import load_tensors

        self._verify(model_file(model))
        weights = load_tensors(self.path / model_file(model))
        if averaged:
            if not self.has_averages:
                raise InputError(
                    f"checkpoint {self.path} has no moving averages. Train with ema_decay, or load the weights."
                )
            weights.update(self._tree("state")["optimization"]["emas"][model]["averages"])
        return weights

    def load_model(self, trial_class: type[Trial] | None = None, *, trust_code: bool = False) -> nn.Module:
        """The trained model in evaluation mode, verified by checksum; see `trek.train.checkpointing.loading`."""
        from trek.train.checkpointing.loading import load_model

        return load_model(self, trial_class or self._trial_class, trust_code=trust_code)

    def __getstate__(self) -> dict[str, Any]:
        """In another process, `load_model` uses the Trial that this program has imported."""
        from trek.train.checkpointing.loading import imported_trial

        known = imported_trial(self) if self.manifest.get("trial") is not None else None
        return {**self.__dict__, "_trial_class": self._trial_class or known}

    def __trek_fingerprint__(self) -> Any:
        """The content, wherever it lies, and the Trial with which `load_model` makes the model."""
        return self.manifest, self.__getstate__()["_trial_class"]

    def check_owner(self, owner: str | None) -> None:
        """Raise `CheckpointError` if another than `owner` has written it; None accepts all."""
        if owner is not None and self.manifest.get("owner", "") != owner:
            raise CheckpointError(f"checkpoint {self.path} was written by another trial.")

    def verify(self) -> None:
        """Raise `CheckpointError` unless every file exists with the size and checksum given in the manifest."""
        verify_files(self.path, self.manifest)
        self._verified = {name: _identity(self.path / name) for name in self.manifest["files"]}

    def read(self) -> Snapshot:
        """Verify the checkpoint and read everything."""
        files = self.manifest["files"]
        self._verify(*files)
        models = [self.state_dict(i) for i in range(sum(name.startswith("model") for name in files))]
        ranks = [self._tree(f"rank_{rank}") for rank in range(self.manifest["world_size"])]
        return Snapshot(models=models, shared=self._tree("state"), ranks=ranks)

    def _verify(self, *names: str) -> None:
        """Verify files before they are read, unless they are unchanged since they were verified."""
        changed = [name for name in names if not self._verified.get(name) == _identity(self.path / name) != ()]
        verify_files(self.path, self.manifest, changed)
        self._verified |= {name: _identity(self.path / name) for name in changed}

    def _tree(self, stem: str) -> dict[str, Any]:
        from trek.train.checkpointing.tensor_files import load_tensors

        self._verify(f"{stem}.json", f"{stem}.safetensors")
        tensors = load_tensors(self.path / f"{stem}.safetensors")
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


def check_savable(model: Any) -> None:
    """Raise `InputError` if the state of a model holds anything but tensors that a checkpoint can hold."""
    import torch

    from trek.train.checkpointing.tensor_files import check_tensor

    state = model.state_dict() if hasattr(model, "state_dict") else {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise InputError(
                f"the state of the model has {name!r}, which is a {type(value).__name__}: a checkpoint holds only "
                "tensors of a model. Return a tensor from get_extra_state, or keep it in an object passed to add_state."
            )
        check_tensor(value, f"{name!r} of the model")


def model_file(index: int) -> str:
    """The file name of the run's `index`-th model."""
    return f"model_{index}.safetensors" if index else "model.safetensors"


def _identity(path: Path) -> tuple[int, ...]:
    """Changes when the file is written to or replaced; empty if it is missing."""
    try:
        facts = path.stat()
    except OSError:
        return ()
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
