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

import ast
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

_REQUIRED = ("feed", "loss", "optimizer", "eval_metrics_fn")
_OLDER = {"feed": "dataset_fn"}
_ZOO_PARAMETERS = ("model_zoo", "model_def", "functions", "model_params")


class ModelZoo:
    """The functions of one module.

    `functions` are names that its functions have instead of the usual ones, by these: {"loss": "my_loss"}.
    `model_params` are arguments of the model, as text: `units=32; name="wide"`.
    """

    def __init__(
        self, model_zoo: str, model_def: str, *, functions: Mapping[str, str] | None = None, model_params: str = ""
    ) -> None:
        self._module, self._make_model = _load(Path(model_zoo), model_def)
        self._arguments = read_params(model_params)
        renamed = functions or {}
        found = {name: self._find(name, renamed.get(name)) for name in (*_REQUIRED, "callbacks")}
        missing = [renamed.get(name, name) for name in _REQUIRED if found[name] is None]
        if missing:
            raise EntrypointError(f"{model_def} has no {', '.join(missing)}. See trek.compat.elasticdl.model_zoo.")
        self._functions: dict[str, Any] = found

    def _find(self, name: str, renamed: str | None) -> Any:
        for one in (renamed,) if renamed else (name, _OLDER.get(name, name)):
            if callable(found := getattr(self._module, one, None)):
                return found
        return None

    def model(self) -> nn.Module:
        """A new model."""
        try:
            inspect.signature(self._make_model).bind(**self._arguments)
        except TypeError as error:
            raise InputError(f"the model does not take its model_params {self._arguments}: {error}.") from error
        made: nn.Module = self._make_model(**self._arguments)
        return made

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of a model's parameters."""
        function = self._functions["optimizer"]
        takes = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        made: Any = function(model.parameters()) if takes else function()
        is_maker = callable(made) and not isinstance(made, torch.optim.Optimizer)
        chosen: torch.optim.Optimizer = made(model.parameters()) if is_maker else made
        return chosen

    def samples(self, place: str, mode: Mode) -> Any:
        """What the model reads of the data at a path, URL or name of a data set."""
        name, _, split = place.partition(":") if "/" not in place else (place, "", "")
        return self._functions["feed"](trek.data.open(name, split=split or None), mode, None)

    def loss(self, labels: Any, outputs: Any) -> torch.Tensor:
        """The mean loss of a batch."""
        value: torch.Tensor = self._functions["loss"](labels, outputs)
        return value

    def metrics(self, labels: Any, outputs: Any) -> dict[str, Any]:
        """The metrics of a batch."""
        functions: Mapping[str, Callable[..., Any]] = self._functions["eval_metrics_fn"]()
        return {name: _mean(function(labels, outputs)) for name, function in functions.items()}

    def callbacks(self) -> Mapping[str, trek.Callback]:
        """The module's own."""
        make = self._functions["callbacks"]
        return dict(make()) if make is not None else {}


class ZooTrial(trek.Trial):
    """A module of a model zoo as a Trial.

    Hyperparameters: global_batch_size, those of ModelZoo, and `checkpoint`, whose weights a new model begins with.
    """

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        given = context.get_hparams()
        self._checkpoint: str | None = given.get("checkpoint")
        self.zoo = ModelZoo(**{name: given[name] for name in _ZOO_PARAMETERS if name in given})

    def build_model(self) -> nn.Module:
        """`custom_model()`."""
        model = self.zoo.model()
        return model if self._checkpoint is None else _restored(model, self._checkpoint)

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


def train(
    *,
    training_data: str,
    validation_data: str | None = None,
    minibatch_size: int = 64,
    checkpoint: Path | str | None = None,
    **settings: Any,
) -> Any:
    """Train a model of the zoo, on batches of `minibatch_size` samples of all workers together.

    `checkpoint` has weights to begin with. `settings` are those of ModelZoo and of `trek.fit`.
    """
    zoo = {name: settings.pop(name) for name in _ZOO_PARAMETERS if name in settings}
    begin = {} if checkpoint is None else {"checkpoint": str(checkpoint)}
    return trek.fit(
        ZooTrial,
        hparams={**zoo, **begin, "global_batch_size": minibatch_size},
        data={"training_data": training_data, **({"validation_data": validation_data} if validation_data else {})},
        **settings,
    )


def evaluate(
    *, validation_data: str, checkpoint: Path | str, minibatch_size: int = 64, **zoo_parameters: Any
) -> dict[str, float]:
    """The metrics of a trained model, averaged by sample; the other parameters are those of ModelZoo."""
    zoo = ModelZoo(**zoo_parameters)
    model = _restored(zoo.model(), checkpoint).eval()
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
    *, prediction_data: str, checkpoint: Path | str, minibatch_size: int = 64, **zoo_parameters: Any
) -> torch.Tensor:
    """The outputs of a trained model for every sample, in order; the other parameters are those of ModelZoo."""
    zoo = ModelZoo(**zoo_parameters)
    model = _restored(zoo.model(), checkpoint).eval()
    outputs = []
    with torch.no_grad():
        for batch in _batches(zoo.samples(prediction_data, Mode.PREDICTION), minibatch_size):
            outputs.append(model(batch[0] if isinstance(batch, list | tuple) else batch))
    return torch.cat(outputs)


def read_params(text: str) -> dict[str, Any]:
    """Arguments as ElasticDL's command line writes them: `units=32; name="wide"`."""
    read = {}
    for one in filter(None, (part.strip() for part in text.split(";"))):
        name, sign, value = one.partition("=")
        if not sign or not name.strip().isidentifier():
            raise InputError(f"model_params must be 'name=value; name=value', got {one!r}.")
        try:
            read[name.strip()] = ast.literal_eval(value.strip())
        except (SyntaxError, ValueError):
            read[name.strip()] = value.strip()
    return read


def _restored(model: nn.Module, checkpoint: Path | str) -> nn.Module:
    model.load_state_dict(trek.Checkpoint(checkpoint).state_dict())
    return model


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
