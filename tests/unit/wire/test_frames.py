"""Frames arrive whole and in order, whoever reads them and however they are cut."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.wire import frames

FRAMES = st.lists(st.tuples(st.dictionaries(st.text(), st.integers()), st.binary(max_size=9000)), max_size=5)


@given(FRAMES, st.integers(1, 20))
def test_frames_arrive_whole_however_they_are_cut(sent: list[tuple[dict[str, int], bytes]], size: int) -> None:
    stream = b"".join(frames.pack(head, [body]) for head, body in sent)
    parser, found = frames.FrameParser(), []
    for at in range(0, len(stream), size):
        found += [(head, bytes(body)) for head, body in parser.feed(stream[at : at + size])]
    assert found == sent


@given(st.lists(st.tuples(st.binary(max_size=9000), st.lists(st.binary(max_size=9000), max_size=3)), max_size=3))
def test_both_readers_of_sockets_give_what_was_sent(sent: list[tuple[bytes, list[bytes]]]) -> None:
    for is_buffered in (False, True):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            frames.set_send_buffer(ours)
            for head, parts in sent:
                frames.send_all(ours, frames.frame_parts(head, parts))
            reader = frames.FrameReader(theirs)
            found = [reader.receive() if is_buffered else frames.receive(theirs) for _ in sent]
            assert [(head, bytes(body)) for head, body in found] == [(head, b"".join(parts)) for head, parts in sent]
            ours.close()
            with pytest.raises(EOFError):
                reader.receive() if is_buffered else frames.receive(theirs)


@pytest.mark.parametrize("sizes", [(frames.MAX_HEAD_BYTES + 1, 0), (0, 1)])
def test_a_message_that_is_too_large_is_refused_before_it_is_received(sizes: tuple[int, int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(struct.pack("<IQ", *sizes))
        with pytest.raises(EOFError):
            frames.receive_message(theirs)
    with pytest.raises(EOFError):
        list(frames.FrameParser(max_body_bytes=0).feed(struct.pack("<IQ", *sizes)))


def test_a_body_is_split_by_sizes() -> None:
    assert [bytes(part) for part in frames.split(memoryview(b"abcdef"), [2, 0, 4])] == [b"ab", b"", b"cdef"]
