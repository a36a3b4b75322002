"""Reading on in a growing log file."""

from __future__ import annotations

from pathlib import Path

from trek.engines import LogLine
from trek.engines.log_file import MAX_LINE_BYTES, MAX_READ_BYTES, read_lines


def test_whole_lines_come_with_the_position_after_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes("é\n\nthird\nunfin".encode())
    lines = read_lines(log, 0, is_over=False)
    assert lines == [LogLine("é", 3), LogLine("", 4), LogLine("third", 10)]
    assert read_lines(log, 10, is_over=False) == []
    assert read_lines(log, 10, is_over=True) == [LogLine("unfin", 15)]
    assert read_lines(log, 15, is_over=True) == []


def test_a_file_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "none", 0, is_over=True) == []


def test_one_call_reads_a_bounded_part_and_loses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = b"x" * 999 + b"\n"
    log.write_bytes(line * 5000 + b"end")
    lines = read_lines(log, 0, is_over=True)
    assert lines[-1].end <= MAX_READ_BYTES
    assert {line.text for line in lines} == {"x" * 999}, "what the bound cut is left for the next call"
    while more := read_lines(log, lines[-1].end, is_over=True):
        lines += more
    assert (len(lines), lines[-1].text) == (5001, "end")


def test_a_line_without_an_end_comes_in_pieces(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"y" * MAX_LINE_BYTES)
    assert [line.end for line in read_lines(log, 0, is_over=False)] == [MAX_LINE_BYTES]


def test_a_database_gets_no_zero_bytes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a\0b\xff\n")
    assert read_lines(log, 0, is_over=False)[0].text == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
