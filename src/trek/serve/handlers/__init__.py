"""Handlers: what turns the inputs of requests into outputs, one file for each kind of model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.registry import Registry

if TYPE_CHECKING:
    from trek.serve.handlers.base import Handler
    from trek.serve.model_source import ModelSource

HANDLERS: Registry[type[Handler]] = Registry(
    "handlers",
    {
        "archive": "trek.serve.handlers.archive_handler:ArchiveHandler",
        "checkpoint": "trek.serve.handlers.trial_handler:TrialHandler",
        "function": "trek.serve.handlers.function_handler:FunctionHandler",
        "pretrained": "trek.serve.handlers.pretrained_handler:PretrainedHandler",
    },
    word="handler",
    base="trek.serve.handlers.base:Handler",
)

__all__ = ["HANDLERS", "open_handler"]


def open_handler(source: ModelSource, *, device: str = "cpu", number: int = 0) -> Handler:
    """Load the model of `source` on `device`; `number` counts the processes that load it, to share out the GPUs."""
    return HANDLERS.load(source.kind).open(source, device=device, number=number)
