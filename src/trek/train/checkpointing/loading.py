"""Loads the model of a checkpoint: builds it with its Trial, then loads the weights."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from torch import nn

from trek.errors import CheckpointError
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.traveler import Traveler
from trek.train.trial import Trial, TrialContext
from trek.world import World


def describe_trial(trial_class: type[Trial], hparams: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values that a checkpoint holds so that its model can be built again."""
    return {
        "entrypoint": f"{trial_class.__module__}:{trial_class.__qualname__}",
        "hparams": _plain(hparams),
        "data": _plain(data),
    }


def load_model(checkpoint: CheckpointFolder, trial_class: type[Trial] | None = None) -> nn.Module:
    """The model in evaluation mode on the CPU, with the weights used for validation: the averages, if there are any.

    The Trial's class is imported by the name it had in training; pass `trial_class` if that is not possible.
    """
    description = checkpoint.manifest.get("trial")
    if description is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.path} was saved by an explicit loop, so its model cannot be built automatically. "
            "Build the model yourself and load checkpoint.state_dict()."
        )
    chosen = trial_class or _import(description["entrypoint"])
    with Traveler(world=World(device_name="cpu"), show_progress=False) as traveler:
        context = TrialContext(traveler, hparams=description["hparams"], data=description["data"])
        trial = chosen(context)
        is_manual = type(trial).build_model is Trial.build_model
        model = traveler.optimization.models[0] if is_manual else trial.build_model()
    model.load_state_dict(checkpoint.state_dict(averaged=checkpoint.has_averages))
    return model.eval()


def _import(entrypoint: str) -> type[Trial]:
    module, _, name = entrypoint.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise CheckpointError(
            f"the Trial {entrypoint} that wrote this checkpoint cannot be imported here ({error}). "
            "Add its folder to sys.path, or pass the class: load_model(trial_class)."
        ) from error
    trial_class: type[Trial] = found
    return trial_class


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON-serializable entries of `values`; other objects passed to `trek.fit` are left out."""
    return {key: value for key, value in values.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, bool | int | float | str)
