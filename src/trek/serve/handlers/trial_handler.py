"""TrialHandler: the model of a checkpoint, called as its Trial calls it.

`Trial.predict_batch` is what it answers; without one, the output of the model in `evaluate_batch`, so that whatever
that method does to a batch before the model sees it is done here too. Requests send what the
Trial declares as its `inputs`, or else every tensor of a batch that its code reads on the way to the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from trek.errors import CheckpointError, InputError
from trek.serve.handlers.absent_input import AbsentTensor, AbsentValue, InputRead
from trek.serve.handlers.base import Arrays, Handler, check_rows
from trek.serve.handlers.model_code import import_trial
from trek.serve.handlers.torch_values import numpy_name, specs_of, to_arrays, to_tensor
from trek.serve.model_source import ModelSource
from trek.serve.tensor_spec import TensorSpec
from trek.train.checkpointing.batch_signature import TEXT, Field, build_batch, fields_of, other_parts_of
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, open_checkpoint
from trek.train.checkpointing.loading import LoadedTrial, load_trial
from trek.train.declared_arguments import with_declared_arguments
from trek.train.trial import Trial
from trek.world.devices import choose_device

_NUM_SAMPLES = 2


class TrialHandler(Handler):
    """A Trial with its trained model."""

    def __init__(self, loaded: LoadedTrial, *, checkpoint: CheckpointFolder) -> None:
        """`loaded` is the Trial of `checkpoint`; CheckpointError if that does not say what a batch holds."""
        self._trial = loaded.trial
        self._manifest = checkpoint.manifest
        self._signature = read_signature(checkpoint)
        self._device = loaded.trial.context.device
        self._call = _find_call(loaded)
        self._preprocess = getattr(loaded.trial, "preprocess", None)
        self._postprocess = getattr(loaded.trial, "postprocess", None)
        fields = fields_of(self._signature)
        self._dtypes = {field.name: "" if field.dtype == TEXT else field.dtype for field in fields}
        self._absent: dict[str, Any] = {name: AbsentValue(name, object) for name in other_parts_of(self._signature)}
        self._inputs = self._find_inputs(fields)
        if self._preprocess is None:
            self.inputs = [TensorSpec(one.name, numpy_name(one.dtype), one.shape) for one in self._inputs]
        answer = self._try_samples(self._inputs)
        if self._postprocess is None:
            self.outputs = specs_of(answer)

    @classmethod
    def open(cls, source: ModelSource, *, device: str, number: int = 0) -> Handler:
        """Load the checkpoint, with the code in the source's folder."""
        checkpoint = open_checkpoint(source.address)
        trial_class = import_trial(checkpoint, source)
        loaded = load_trial(checkpoint, trial_class, device=str(choose_device(device, local_rank=number)))
        return cls(loaded, checkpoint=checkpoint)

    def __trek_fingerprint__(self) -> Any:
        """The content of the checkpoint, and the code of its Trial."""
        return (self._manifest, type(self._trial))

    @property
    def input_names(self) -> list[str]:
        """The names of a batch's parts that the model takes."""
        return [field.name for field in self._inputs]

    def answer_batch(self, batch: Any) -> Arrays:
        """What the Trial answers for a batch of its own data."""
        with torch.inference_mode():
            return to_arrays(self._call(batch))

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """What the Trial answers for these rows."""
        num_rows = len(next(iter(inputs.values())))
        values = dict(inputs) if self._preprocess is None else self._preprocessed(inputs)
        tensors = {
            name: to_tensor(np.asarray(one), dtype=self._dtypes[name], device=self._device)
            for name, one in values.items()
        }
        try:
            outputs = self._answer(tensors)
        except InputRead as read:
            raise InputError(
                f"{self._title} read {read.name!r} of a batch for these rows, but not for the samples by which its "
                f"inputs were found: {', '.join(self.input_names)}. Name all its inputs in the class: inputs = (…)."
            ) from None
        if self._postprocess is not None:
            outputs = to_arrays(self._postprocess(outputs))
        check_rows(outputs, num_rows)
        return outputs

    @property
    def _title(self) -> str:
        return type(self._trial).__name__

    def _preprocessed(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        assert self._preprocess is not None
        values = dict(self._preprocess(dict(inputs)))
        if values.keys() != set(self.input_names):
            raise InputError(
                f"preprocess of {self._title} returned {', '.join(map(str, values)) or 'nothing'}, but the model takes "
                f"{', '.join(self.input_names)}. Return these, or name the inputs in the class: inputs = (…)."
            )
        return values

    def _answer(self, tensors: Mapping[str, Any]) -> Arrays:
        return self.answer_batch(build_batch(self._signature, {**self._absent, **tensors}))

    def _find_inputs(self, fields: Sequence[Field]) -> list[Field]:
        """Those that the Trial declares, or all that it reads on the way to its answer; the others become absent."""
        declared = type(self._trial).inputs
        if declared is not None:
            _check_declared(declared, fields, title=self._title)
            return [field for field in fields if field.name in declared]
        self._try_samples(fields)
        found = [field for field in fields if self._reads(field, fields)]
        self._absent |= {field.name: _absent(field) for field in fields if field not in found}
        return found

    def _try_samples(self, fields: Sequence[Field]) -> Arrays:
        """The answer to made-up values of `fields`; InputError if there is none."""
        advice = "Define predict_batch, or correct it"
        try:
            found = self._answer(self._samples(fields))
        except InputRead as read:
            kind = other_parts_of(self._signature)[read.name]
            raise InputError(
                f"{self._title} reads {read.name!r} of a batch, which is {kind} and no tensor, so no request can hold "
                f"it. {advice}."
            ) from None
        except Exception as error:
            given = ", ".join(field.name for field in fields)
            raise InputError(
                f"{self._title} cannot answer a batch like those it was trained on, with {given}: "
                f"{type(error).__name__}: {error}. {advice}."
            ) from error
        check_rows(found, _NUM_SAMPLES)
        return found

    def _reads(self, field: Field, fields: Sequence[Field]) -> bool:
        """Whether the answer cannot be made without `field`."""
        try:
            self._answer({**self._samples(fields), field.name: _absent(field)})
        except (Exception, InputRead):  # noqa: BLE001 - the user's code may raise anything
            return True
        return False

    def _samples(self, fields: Sequence[Field]) -> dict[str, Any]:
        return {field.name: _sample(field, device=self._device) for field in fields}


def read_signature(checkpoint: CheckpointFolder) -> Mapping[str, Any]:
    """What a batch of the checkpoint's Trial holds; CheckpointError if that was not recorded."""
    signature = checkpoint.manifest["trial"].get("batch")
    if not fields_of(signature):
        raise CheckpointError(
            f"checkpoint {checkpoint.path} does not say what a batch holds: it was written by an older version of "
            "Trek, or its batches are not made of tensors. Train further to save another one, or serve "
            "module:function."
        )
    found: Mapping[str, Any] = signature
    return found


class _ForwardReached(BaseException):
    """Leaves `evaluate_batch` with the model's output; not an Exception, which the user's code may catch."""

    def __init__(self, output: Any) -> None:
        self.output = output


def _find_call(loaded: LoadedTrial) -> Callable[[Any], Any]:
    trial, model = loaded.trial, loaded.model
    if callable(getattr(trial, "predict_batch", None)):
        predict = with_declared_arguments(trial.predict_batch, ("batch", "model"))
        return lambda batch: predict(batch, model)
    return _forward_of_evaluation(trial, model)


def _forward_of_evaluation(trial: Trial, model: nn.Module) -> Callable[[Any], Any]:
    """Runs the Trial's evaluation of a batch up to the first output of the model, which is the answer."""
    if callable(getattr(trial, "evaluate_batch", None)):
        evaluate = with_declared_arguments(trial.evaluate_batch, ("batch", "model", "batch_idx"))
        run: Callable[[Any], Any] = lambda batch: evaluate(batch, model, 0)  # noqa: E731
    else:
        whole = with_declared_arguments(trial.evaluate_full_dataset, ("data_loader", "model"))
        run = lambda batch: whole([batch], model)  # noqa: E731

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        raise _ForwardReached(output)

    def call(batch: Any) -> Any:
        try:
            run(batch)
        except _ForwardReached as reached:
            return reached.output
        raise InputError(f"{type(trial).__name__} evaluates a batch without its model. Define predict_batch.")

    model.register_forward_hook(leave)
    return call


def _sample(field: Field, *, device: torch.device) -> Any:
    """Made-up values: small, and not all alike."""
    if field.dtype == TEXT:
        return ["a"] * _NUM_SAMPLES
    dtype: torch.dtype = getattr(torch, field.dtype)
    size = (_NUM_SAMPLES, *field.shape)
    if dtype.is_floating_point:
        values = torch.rand(size, generator=torch.Generator().manual_seed(1))
    else:
        values = (torch.arange(int(np.prod(size))) % 2).reshape(size)
    return values.to(device=device, dtype=dtype)


def _absent(field: Field) -> Any:
    return AbsentValue(field.name, list) if field.dtype == TEXT else AbsentTensor.of(field.name)


def _check_declared(declared: Any, fields: Sequence[Field], *, title: str) -> None:
    known = ", ".join(field.name for field in fields)
    names = list(declared) if isinstance(declared, Collection) and not isinstance(declared, str) else []
    unknown = next((name for name in names if name not in {field.name for field in fields}), None)
    if not names or unknown is not None:
        what = f"{unknown!r}" if names else f"{declared!r:.60}"
        raise InputError(f"inputs of {title} must be names of parts of a batch, got {what}. A batch has: {known}.")
