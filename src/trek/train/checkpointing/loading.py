"""From a checkpoint back to a model: rebuilds what the Trial built, and loads the weights into it."""

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
    """What a checkpoint keeps so that its model can be built again: plain values only."""
    return {
        "entrypoint": f"{trial_class.__module__}:{trial_class.__qualname__}",
        "hparams": _plain(hparams),
        "data": _plain(data),
    }


def load_model(checkpoint: CheckpointFolder, trial_class: type[Trial] | None = None) -> nn.Module:
    """The model in evaluation mode on the CPU, with the weights it was validated with: the averages, if it has them.

    The Trial's class is imported by the name it had in training; pass `trial_class` where that is not possible.
    """
    about = checkpoint.manifest.get("trial")
    if about is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.path} was saved by an explicit loop, which only its own code can rebuild. "
            "Build the model yourself and load checkpoint.state_dict()."
        )
    chosen = trial_class or _import(about["entrypoint"])
    with Traveler(world=World(device_name="cpu"), show_progress=False) as traveler:
        context = TrialContext(traveler, hparams=about["hparams"], data=about["data"])
        trial = chosen(context)
        wraps_itself = type(trial).build_model is Trial.build_model
        model = traveler.optimization.models[0] if wraps_itself else trial.build_model()
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
    """Those of `values` that JSON can hold; live objects passed to a fit in one process cannot be kept."""
    return {key: value for key, value in values.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, bool | int | float | str)
