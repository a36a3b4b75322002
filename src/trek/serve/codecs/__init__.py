"""Codecs: the bodies of requests and answers, one file for each format. Worker processes use them, the front not."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trek.serve.codecs.base import Codec

_HOMES = {
    "arrow": "trek.serve.codecs.arrow_stream:ArrowStream",
    "grpc": "trek.serve.codecs.grpc_messages:GrpcMessages",
    "npy": "trek.serve.codecs.numpy_files:NpyFile",
    "npz": "trek.serve.codecs.numpy_files:NpzFile",
    "records": "trek.serve.codecs.records:Records",
    "v2": "trek.serve.codecs.open_inference:OpenInference",
}
CONTENT_TYPES = {
    "": "records",
    "application/json": "records",
    "application/x-npy": "npy",
    "application/x-npz": "npz",
    "application/vnd.apache.arrow.stream": "arrow",
}
"""The codec of a plain request, by its Content-Type."""

__all__ = ["CONTENT_TYPES", "MAX_BYTES", "open_codec"]


MAX_BYTES = 1 << 30
"""What a request may unpack to where no server sets a limit."""


def open_codec(name: str, *, max_bytes: int = MAX_BYTES) -> Codec:
    """The codec called `name`, imported when it is first asked for; a request may unpack to `max_bytes`."""
    module, _, attribute = _HOMES[name].partition(":")
    codec: Codec = getattr(importlib.import_module(module), attribute)(max_bytes=max_bytes)
    return codec
