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

__all__ = ["CONTENT_TYPES", "open_codec"]


def open_codec(name: str) -> Codec:
    """The codec called `name`, imported when it is first asked for."""
    module, _, attribute = _HOMES[name].partition(":")
    codec: Codec = getattr(importlib.import_module(module), attribute)()
    return codec
