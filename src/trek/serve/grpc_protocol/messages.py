"""The messages of `inference.proto` as classes.

They are made from the compiled description, `inference.binpb`, and not from code that protoc generates: that runs only
with the versions of protobuf it was generated for. They are in a pool of their own, so that a client library of the
same protocol may be loaded beside them.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SET = descriptor_pb2.FileDescriptorSet.FromString(files(__package__).joinpath("inference.binpb").read_bytes())
_POOL = descriptor_pool.DescriptorPool()
DESCRIPTOR: Any = _POOL.AddSerializedFile(_SET.file[0].SerializeToString())
SERVICE = "inference.GRPCInferenceService"


def message(name: str) -> Any:
    """The class of the message called `name`."""
    return message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name[name])


ModelInferRequest = message("ModelInferRequest")
ModelInferResponse = message("ModelInferResponse")
