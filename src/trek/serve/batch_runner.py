"""BatchRunner: answers requests that came together with as few calls of the model as their shapes allow.

A request that fails, fails alone: when a batch raises, its requests are answered one by one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trek.errors import InputError
from trek.serve.codecs import MAX_BYTES, open_codec
from trek.serve.codecs.base import Answer, Codec, Request, TooLarge
from trek.serve.codecs.numpy_files import ONLY
from trek.serve.handlers.base import Arrays, Handler

logger = logging.getLogger(__name__)


@dataclass
class Job:
    """One request as it came."""

    codec: str
    headers: Mapping[str, str]
    body: memoryview


@dataclass
class Outcome:
    """The answer to one request, and its HTTP status."""

    status: int
    answer: Answer


@dataclass
class _Decoded:
    index: int
    request: Request
    inputs: Arrays

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.inputs.values())))

    @property
    def form(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        return tuple((name, array.dtype.str, array.shape[1:]) for name, array in self.inputs.items())


class BatchRunner:
    """Runs requests through a handler, at most `max_rows` rows at a time; a request may unpack to `max_bytes`."""

    def __init__(
        self, handler: Handler, *, model: str, version: str, max_rows: int, max_bytes: int = MAX_BYTES
    ) -> None:
        self._handler = handler
        self._model = model
        self._version = version
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._codecs: dict[str, Codec] = {}

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """An outcome for each job, in order."""
        outcomes: dict[int, Outcome] = {}
        groups: dict[object, list[_Decoded]] = {}
        for index, job in enumerate(jobs):
            decoded = self._decode(index, job)
            if isinstance(decoded, Outcome):
                outcomes[index] = decoded
            else:
                groups.setdefault(decoded.form, []).append(decoded)
        for group in groups.values():
            for one, outputs in zip(group, self._predict(group), strict=True):
                outcomes[one.index] = self._encode(jobs[one.index], one.request, outputs)
        return [outcomes[index] for index in range(len(jobs))]

    def stream(self, job: Job) -> Iterator[bytes]:
        """The pieces of the answer to one request, each as JSON; raises what the model raises."""
        for piece in self._handler.stream(self._fit(self.codec(job.codec).decode(job.body, headers=job.headers))):
            yield json.dumps(_plain(piece)).encode()

    def codec(self, name: str) -> Codec:
        """The codec called `name`."""
        if name not in self._codecs:
            self._codecs[name] = open_codec(name, max_bytes=self._max_bytes)
        return self._codecs[name]

    def _decode(self, index: int, job: Job) -> _Decoded | Outcome:
        try:
            if self._handler.is_stream:
                raise InputError("this model answers piece by piece. Use the route …/generate_stream.")
            request = self.codec(job.codec).decode(job.body, headers=job.headers)
            return _Decoded(index, request, self._fit(request))
        except Exception as error:  # noqa: BLE001 - a request must not end the others
            return failed(error)

    def _fit(self, request: Request) -> Arrays:
        inputs = request.inputs
        if list(inputs) == [ONLY]:
            specs = self._handler.inputs
            if specs is None or len(specs) != 1:
                raise InputError("the model has not one named input. Send arrays by name, as application/x-npz.")
            inputs = {specs[0].name: inputs[ONLY]}
        return self._handler.fit(inputs)

    def _predict(self, group: Sequence[_Decoded]) -> list[Arrays | Outcome]:
        """The outputs of each request of one form, or how it failed."""
        try:
            if len(group) == 1:
                return [self._predict_rows(group[0].inputs, group[0].num_rows)]
            together = {name: np.concatenate([one.inputs[name] for one in group]) for name in group[0].inputs}
            sizes = [one.num_rows for one in group]
            return _parts(self._predict_rows(together, sum(sizes)), sizes)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            if len(group) == 1:
                return [failed(error)]
        return [outputs for one in group for outputs in self._predict([one])]

    def _predict_rows(self, inputs: Arrays, num_rows: int) -> Arrays:
        if num_rows <= self._max_rows:
            return self._handler.predict(inputs)
        starts = range(0, num_rows, self._max_rows)
        found = [
            self._handler.predict({name: array[at : at + self._max_rows] for name, array in inputs.items()})
            for at in starts
        ]
        return {name: np.concatenate([one[name] for one in found]) for name in found[0]}

    def _encode(self, job: Job, request: Request, outputs: Arrays | Outcome) -> Outcome:
        if isinstance(outputs, Outcome):
            return outputs
        try:
            codec = self.codec(job.codec)
            return Outcome(200, codec.encode(outputs, request=request, model=self._model, version=self._version))
        except Exception as error:  # noqa: BLE001 - a request must not end the others
            return failed(error)


def failed(error: Exception) -> Outcome:
    """400 or 413 for what the sender can correct, 500 for what the model raised, which is logged."""
    if isinstance(error, InputError):
        return Outcome(413 if isinstance(error, TooLarge) else 400, Answer(json.dumps({"error": str(error)}).encode()))
    logger.error("the model failed", exc_info=error)
    return Outcome(500, Answer(json.dumps({"error": f"the model failed: {type(error).__name__}: {error}"}).encode()))


def _parts(outputs: Arrays, sizes: Sequence[int]) -> list[Arrays | Outcome]:
    ends = np.cumsum(sizes)
    return [
        {name: array[end - size : end] for name, array in outputs.items()}
        for size, end in zip(sizes, ends, strict=True)
    ]


def _plain(value: object) -> object:
    """What a model yields, as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
