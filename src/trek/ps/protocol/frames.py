"""Frames of parameter servers: the head is a message of `pserver.proto`, the body the bytes of its tensors."""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError

from trek.ps.protocol import messages as pb
from trek.ps.protocol.tensors import Attachments, Bytes
from trek.wire.frames import FrameReader, Part, frame_parts

_MAX_KEPT_BYTES = 64 << 20
NO_BODY: Bytes = np.empty(0, np.uint8)


def request_parts(envelope: pb.Envelope, attached: Attachments | None = None) -> list[Part]:
    """The frame of a message with its tensors, which must not change before it is sent."""
    return frame_parts(envelope.SerializeToString(), attached.parts if attached is not None else ())


def receive_envelope(frames: FrameReader) -> tuple[pb.Envelope, Bytes]:
    """The next message and its bytes; EOFError if the other side closed the connection or sent no message."""
    head, body = frames.receive()
    try:
        return pb.Envelope.FromString(head), np.asarray(body)
    except DecodeError as error:
        raise EOFError from error


def fresh_memory(count: int) -> memoryview:
    """Memory of its own for every body: it then is that of the tensors."""
    return np.empty(count, np.uint8).data


class ReusedMemory:
    """The same memory for every body, valid until the next one is received."""

    def __init__(self) -> None:
        self._kept = NO_BODY

    def __call__(self, count: int) -> memoryview:
        """Memory for `count` bytes."""
        if count > _MAX_KEPT_BYTES:
            return fresh_memory(count)
        if count > len(self._kept):
            self._kept = np.empty(count, np.uint8)
        return self._kept[:count].data
