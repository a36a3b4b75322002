"""Reading on in a growing log file."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from trek.engines import LogLine
from trek.engines.log_file import MAX_LINE_BYTES, MAX_READ_BYTES, read_lines, split_lines


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


def test_a_progress_bar_is_one_line(tmp_path: Path) -> None:
    """Every redrawn state of a progress bar became a log line of its own."""
    log = tmp_path / "log"
    bar = b"".join(b"\r%3d%%" % percent for percent in range(101))
    log.write_bytes(b"before\n" + bar + b"\nafter\nlast\r\n")
    assert [line.text for line in read_lines(log, 0, is_over=False)] == ["before", "100%", "after", "last"]


def test_a_negative_position_counts_from_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\nsecond\nthird\n")
    assert read_lines(log, -10, is_over=True) == [LogLine("third", 19)]
    assert [line.text for line in read_lines(log, -1000, is_over=True)] == ["first", "second", "third"]


_bytes = st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", "é€😀".encode(), b"\xff\xf0", b"\0", b"x" * 9000])).map(
    b"".join
)


@given(_bytes, st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_is_written_is_read_on_from_every_position(data: bytes, is_all: bool) -> None:
    lines = list(split_lines(data, 100, is_all=is_all))
    ends = [line.end for line in lines]
    assert ends == sorted(set(ends)), "a database needs one position a line"
    assert all(100 < end <= 100 + len(data) for end in ends)
    assert all(len(line.text.encode()) <= 3 * MAX_LINE_BYTES and "\0" not in line.text for line in lines)
    for line in lines:
        assert "\n" not in line.text
        assert "\r" not in line.text
    if is_all and data:
        assert ends[-1] == 100 + len(data)
    for count, line in enumerate(lines, start=1):
        rest = list(split_lines(data[line.end - 100 :], line.end, is_all=is_all))
        expected = ends[count:] if is_all else ends[count : count + len(rest)]
        assert [one.end for one in rest] == expected, "reading on gives the same lines"


@given(st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=5000, max_size=20_000))
@settings(max_examples=20, deadline=None)
def test_no_character_is_cut(text: str) -> None:
    lines = list(split_lines(text.encode() * 2, 0, is_all=True))
    assert "".join(line.text for line in lines) == text * 2
