"""The messages of `pserver.proto` as classes.

They are made from the compiled description, `pserver.binpb`, and not from code that protoc generates: that runs only
with the versions of protobuf it was generated for. `messages.pyi` has their types.
"""

from __future__ import annotations

from importlib.resources import files

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SET = descriptor_pb2.FileDescriptorSet.FromString(files(__package__).joinpath("pserver.binpb").read_bytes())
DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(_SET.file[0].SerializeToString())

globals().update(
    {name: message_factory.GetMessageClass(one) for name, one in DESCRIPTOR.message_types_by_name.items()},
    **{value.name: value.number for value in DESCRIPTOR.enum_types_by_name["DType"].values},
)
