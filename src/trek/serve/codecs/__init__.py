"""Codecs: the bodies of requests and answers, one file for each format. Worker processes use them, the front not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.registry import Registry

if TYPE_CHECKING:
    from trek.serve.codecs.base import Codec

CODECS: Registry[type[Codec]] = Registry(
    "codecs",
    {
        "arrow": "trek.serve.codecs.arrow_stream:ArrowStream",
        "npy": "trek.serve.codecs.numpy_files:NpyFile",
        "npz": "trek.serve.codecs.numpy_files:NpzFile",
        "records": "trek.serve.codecs.records:Records",
        "v2": "trek.serve.codecs.open_inference:OpenInference",
    },
    word="codec",
    base="trek.serve.codecs.base:Codec",
)

CONTENT_TYPES = {
    "": "records",
    "application/json": "records",
    "application/x-npy": "npy",
    "application/x-npz": "npz",
    "application/vnd.apache.arrow.stream": "arrow",
}
"""The codec of a plain request, by its Content-Type."""

__all__ = ["CODECS", "CONTENT_TYPES"]
