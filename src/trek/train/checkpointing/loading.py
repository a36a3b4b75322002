"""Loads the model of a checkpoint: builds it with its Trial, then loads the weights."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import nn

from trek.errors import CheckpointError, InputError
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.trainer import check_trial_class
from trek.train.traveler import Traveler
from trek.train.trial import Trial
from trek.world import World


def describe_trial(trial_class: type[Trial], hparams: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values that a checkpoint holds so that its model can be built again."""
    return {
        "entrypoint": f"{trial_class.__module__}:{trial_class.__qualname__}",
        "hparams": _plain(hparams),
        "data": _plain(data),
    }


def load_model(
    checkpoint: CheckpointFolder, trial_class: type[Trial] | None = None, *, trust_code: bool = False
) -> nn.Module:
    """The model in evaluation mode on the CPU, with the weights used for validation: the averages, if there are any.

    Its Trial is `trial_class`, or the class that the checkpoint names if this program has imported that already. Only
    with `trust_code` is a module imported because a checkpoint names it.
    """
    return load_trial(checkpoint, trial_class, trust_code=trust_code).model


@dataclass(frozen=True)
class LoadedTrial:
    """A Trial that is not trained here, and its model in evaluation mode, with the weights used for validation."""

    trial: Trial
    model: nn.Module


def load_trial(
    checkpoint: CheckpointFolder,
    trial_class: type[Trial] | None = None,
    *,
    trust_code: bool = False,
    device: str = "cpu",
) -> LoadedTrial:
    """The Trial with all its models on `device`, so that its own methods can be called; see `load_model`."""
    description = checkpoint.manifest.get("trial")
    if description is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.path} was saved by an explicit loop, so its model cannot be built automatically. "
            "Build the model yourself and load checkpoint.state_dict()."
        )
    chosen = trial_class or _named_trial(checkpoint, trust_code=trust_code)
    check_trial_class(chosen)
    with Traveler(world=World(device_name=device), show_progress=False) as traveler:
        context = chosen.context_class(traveler, hparams=description["hparams"], data=description["data"])
        trial = chosen(context)
        is_manual = type(trial).build_model is Trial.build_model
        models = list(traveler.optimization.models) if is_manual else [trial.build_model().to(context.device)]
    for index, model in enumerate(models):
        model.load_state_dict(checkpoint.state_dict(index, averaged=checkpoint.has_averages))
        model.eval()
    return LoadedTrial(trial, models[0])


def imported_trial(checkpoint: CheckpointFolder) -> type[Trial] | None:
    """The Trial that the checkpoint names, if this program has imported it. Runs no code."""
    module, name = _entrypoint(checkpoint)
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
    return found if isinstance(found, type) and issubclass(found, Trial) else None


def _named_trial(checkpoint: CheckpointFolder, *, trust_code: bool) -> type[Trial]:
    module, name = _entrypoint(checkpoint)
    if module not in sys.modules:
        if not trust_code:
            raise InputError(
                f"loading the model of {checkpoint.path} would import and run {module!r}, which the checkpoint names. "
                "Pass the Trial's class, or trust_code=True if you trust whoever wrote the checkpoint."
            )
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise CheckpointError(
                f"the Trial {module}:{name} that wrote this checkpoint cannot be imported here ({error}). "
                "Add its folder to sys.path, or pass the class."
            ) from error
    found = imported_trial(checkpoint)
    if found is None:
        raise CheckpointError(
            f"{module}:{name}, which the checkpoint {checkpoint.path} names, is not a Trial class that can be found "
            "here. If its Trial is defined elsewhere, pass the class."
        )
    return found


def _entrypoint(checkpoint: CheckpointFolder) -> tuple[str, str]:
    description = checkpoint.manifest.get("trial") or {}
    entrypoint = description.get("entrypoint") if isinstance(description, Mapping) else None
    module, separator, name = entrypoint.partition(":") if isinstance(entrypoint, str) else ("", "", "")
    if not (separator and module and name):
        raise CheckpointError(f"checkpoint {checkpoint.path} names no Trial, but {entrypoint!r}. Pass the class.")
    return module, name


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON-serializable entries of `values`; other objects passed to `trek.fit` are left out."""
    return {key: value for key, value in values.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, bool | int | float | str)
