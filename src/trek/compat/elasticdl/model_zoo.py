"""The model zoo's form of a model: a module with functions, trained as a `trek.Trial`.

    custom_model()                    the model, a torch.nn.Module
    loss(labels, predictions)         the mean loss of a batch
    optimizer(parameters)             a torch optimizer; or optimizer(), which returns a function of the parameters
    feed(dataset, mode, metadata)     the samples (features, label) of a Table; `dataset_fn` is its older name
    eval_metrics_fn()                 metrics by name, each a function of (labels, predictions)
    callbacks()                       optional: trek.Callbacks by name

`model_def` names the model: `mnist.cnn.custom_model` is the function custom_model of mnist/cnn.py in `model_zoo`.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

import trek
from trek.compat.elasticdl.constants import Mode
from trek.errors import EntrypointError, InputError

_REQUIRED = ("loss", "optimizer", "eval_metrics_fn")


class ModelZoo:
    """The functions of one module."""

    def __init__(self, model_zoo: str, model_def: str) -> None:
        self._module, self._make_model = _load(Path(model_zoo), model_def)
        missing = [name for name in _REQUIRED if not callable(getattr(self._module, name, None))]
        if not callable(self._feed):
            missing.append("feed")
        if missing:
            raise EntrypointError(f"{model_def} has no {', '.join(missing)}. See trek.compat.elasticdl.model_zoo.")

    @property
    def _feed(self) -> Any:
        return getattr(self._module, "feed", None) or getattr(self._module, "dataset_fn", None)

    def model(self) -> nn.Module:
        """A new model."""
        made: nn.Module = self._make_model()
        return made

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of a model's parameters."""
        function = self._module.optimizer
        takes = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        made: Any = function(model.parameters()) if takes else function()
        is_maker = callable(made) and not isinstance(made, torch.optim.Optimizer)
        chosen: torch.optim.Optimizer = made(model.parameters()) if is_maker else made
        return chosen

    def samples(self, place: str, mode: Mode) -> Any:
        """What the model reads of the data at a path, URL or name of a data set."""
        name, _, split = place.partition(":") if "/" not in place else (place, "", "")
        return self._feed(trek.data.open(name, split=split or None), mode, None)

    def loss(self, labels: Any, outputs: Any) -> torch.Tensor:
        """The mean loss of a batch."""
        value: torch.Tensor = self._module.loss(labels, outputs)
        return value

    def metrics(self, labels: Any, outputs: Any) -> dict[str, Any]:
        """The metrics of a batch."""
        functions: Mapping[str, Callable[..., Any]] = self._module.eval_metrics_fn()
        return {name: _mean(function(labels, outputs)) for name, function in functions.items()}

    def callbacks(self) -> Mapping[str, trek.Callback]:
        """The module's own."""
        make = getattr(self._module, "callbacks", None)
        return dict(make()) if make is not None else {}


class ZooTrial(trek.Trial):
    """A module of a model zoo as a Trial; hyperparameters: model_zoo, model_def, global_batch_size."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.zoo = ModelZoo(context.get_hparam("model_zoo"), context.get_hparam("model_def"))

    def build_model(self) -> nn.Module:
        """`custom_model()`."""
        return self.zoo.model()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """`optimizer`, of the model's parameters."""
        return self.zoo.optimizer(model)

    def build_training_data_loader(self) -> Any:
        """`feed` for training, shuffled."""
        return self._loader("training_data", Mode.TRAINING)

    def build_validation_data_loader(self) -> Any:
        """`feed` for evaluation."""
        return self._loader("validation_data", Mode.EVALUATION)

    def build_callbacks(self) -> Mapping[str, trek.Callback]:
        """`callbacks()`."""
        return self.zoo.callbacks()

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        """`loss` of one batch."""
        features, labels = batch
        return {"loss": self.zoo.loss(labels, model(features))}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        """The loss, and `eval_metrics_fn` of one batch, averaged by sample over all."""
        features, labels = batch
        outputs = model(features)
        return {"loss": self.zoo.loss(labels, outputs), **self.zoo.metrics(labels, outputs)}

    def _loader(self, key: str, mode: Mode) -> Any:
        data = self.context.get_data_config()
        samples = self.zoo.samples(data.get(key) or data["training_data"], mode)
        size = self.context.get_per_slot_batch_size()
        return trek.DataLoader(samples, size, shuffle=mode is Mode.TRAINING)


def train(*, model_zoo: str, model_def: str, training_data: str, minibatch_size: int = 64, **settings: Any) -> Any:
    """Train a model of the zoo; `settings` are those of `trek.fit`, and `validation_data`."""
    validation = settings.pop("validation_data", None)
    return trek.fit(
        ZooTrial,
        hparams={"model_zoo": model_zoo, "model_def": model_def, "global_batch_size": minibatch_size},
        data={"training_data": training_data, **({"validation_data": validation} if validation else {})},
        **settings,
    )


def evaluate(
    *, model_zoo: str, model_def: str, validation_data: str, checkpoint: Path | str, minibatch_size: int = 64
) -> dict[str, float]:
    """The metrics of a trained model, averaged by sample."""
    zoo, model = _restored(model_zoo, model_def, checkpoint)
    totals: dict[str, float] = {}
    count = 0
    with torch.no_grad():
        for features, labels in _batches(zoo.samples(validation_data, Mode.EVALUATION), minibatch_size):
            outputs = model(features)
            found = {"loss": zoo.loss(labels, outputs), **zoo.metrics(labels, outputs)}
            count += len(labels)
            for name, value in found.items():
                totals[name] = totals.get(name, 0.0) + float(value) * len(labels)
    return {name: total / count for name, total in totals.items()}


def predict(
    *, model_zoo: str, model_def: str, prediction_data: str, checkpoint: Path | str, minibatch_size: int = 64
) -> torch.Tensor:
    """The outputs of a trained model for every sample, in order."""
    zoo, model = _restored(model_zoo, model_def, checkpoint)
    outputs = []
    with torch.no_grad():
        for batch in _batches(zoo.samples(prediction_data, Mode.PREDICTION), minibatch_size):
            outputs.append(model(batch[0] if isinstance(batch, list | tuple) else batch))
    return torch.cat(outputs)


def _restored(model_zoo: str, model_def: str, checkpoint: Path | str) -> tuple[ModelZoo, nn.Module]:
    zoo = ModelZoo(model_zoo, model_def)
    model = zoo.model()
    model.load_state_dict(trek.Checkpoint(checkpoint).state_dict())
    return zoo, model.eval()


def _batches(samples: Any, size: int) -> Any:
    if isinstance(samples, trek.data.Table):
        return samples.batches(size)
    return torch.utils.data.DataLoader(samples, size)


def _mean(value: Any) -> Any:
    return value.float().mean() if isinstance(value, torch.Tensor) and value.dim() else value


def _load(folder: Path, model_def: str) -> tuple[ModuleType, Callable[[], nn.Module]]:
    """The module that `model_def` names, and its function that makes the model."""
    dotted, _, name = model_def.rpartition(".")
    path = folder.joinpath(*dotted.split(".")).with_suffix(".py") if dotted else folder / ".py"
    if not path.is_file():
        raise EntrypointError(
            f"model_def {model_def!r}: {path} not found. Write module.function, such as mnist.cnn.custom_model."
        )
    spec = importlib.util.spec_from_file_location(f"trek_model_zoo_{dotted.replace('.', '_')}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    make = getattr(module, name, None)
    if not callable(make):
        raise InputError(f"model_def {model_def!r}: {path.name} has no function {name!r}.")
    return module, make
