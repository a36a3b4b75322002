"""TrekHandler: what TorchServe calls in an archive that `trek archive` made. Needs nothing of TorchServe's package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.serve.batch_runner import BatchRunner, Job
from trek.serve.handlers.archive_handler import ArchiveHandler

_MAX_ROWS = 1024


class TrekHandler:
    """Loads the model with the first call, as TorchServe does when it starts a worker."""

    def __init__(self) -> None:
        self._runner: BatchRunner | None = None

    def handle(self, data: Sequence[Mapping[str, Any]] | None, context: Any) -> list[Any]:
        """An answer for each request of the batch: a record, or a list of them, with predictions and logits."""
        if self._runner is None:
            self._runner = _open(context.system_properties)
        if not data:
            return []
        outcomes = self._runner.run([Job("records", {}, _body(one)) for one in data])
        for index, outcome in enumerate(outcomes):
            if outcome.status != 200 and hasattr(context, "set_response_status"):
                context.set_response_status(code=outcome.status, idx=index)
        return [json.loads(outcome.answer.body) for outcome in outcomes]


def _open(properties: Mapping[str, Any]) -> BatchRunner:
    gpu = properties.get("gpu_id")
    device = "cpu" if gpu is None else f"cuda:{gpu}"
    handler = ArchiveHandler.of_folder(Path(properties["model_dir"]), device=device)
    return BatchRunner(handler, model="", version="", max_rows=_MAX_ROWS)


def _body(request: Mapping[str, Any]) -> memoryview:
    """The body as it was sent; TorchServe may have parsed it already."""
    body = request.get("body", request.get("data"))
    if body is None:
        raise InputError("the request has no body. Send a JSON object with the inputs by name.")
    raw = bytes(body) if isinstance(body, bytes | bytearray) else json.dumps(body).encode()
    return memoryview(bytearray(raw))
