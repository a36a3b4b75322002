"""Bytes into lines."""

from __future__ import annotations

from pathlib import Path

from trek.engines.lines import MAX_LINE_BYTES, LineBuffer, Tail


def test_lines_are_whole_however_the_bytes_come() -> None:
    lines = LineBuffer()
    assert [*lines.feed(b"a\nb"), *lines.feed(b"c\n"), *lines.feed(b"d"), *lines.flush()] == ["a", "bc", "d"]


def test_a_progress_bar_is_what_it_showed_last() -> None:
    assert list(LineBuffer().feed(b"\r 10%\r 90%\r100%\nwindows\r\n")) == ["100%", "windows"]


def test_output_without_newlines_comes_in_pieces() -> None:
    assert [len(piece) for piece in LineBuffer().feed(b"x" * (MAX_LINE_BYTES + 1))] == [MAX_LINE_BYTES + 1]


def test_broken_text_does_not_break_the_reader() -> None:
    assert list(LineBuffer().feed(b"\xff\n")) == ["�"]


def test_a_tail_waits_for_its_file_and_reads_each_byte_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.read() == b""
    path.write_bytes(b"one")
    assert tail.read() == b"one"
    with path.open("ab") as file:
        file.write(b"two")
    assert tail.read() == b"two"
