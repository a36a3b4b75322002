"""SourceText: a script's text, in which the modules of import statements are replaced where the syntax tree has them.

Nothing else of the text is touched: strings, comments, other statements on the line, and line ends stay as they are.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

_SPACE = r"(?:[ \t\f]|\\(?:\r\n|\r|\n))"
"""Between the words of a statement; a backslash continues it on the next line."""


@dataclass(frozen=True)
class Edit:
    """Text to replace."""

    line: int
    start: int
    """In characters of the whole text."""
    old: str
    new: str


class SourceText:
    """The text, and where the nodes of its tree are in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        # Not `splitlines`, which also splits at characters that do not end a line of Python.
        self._lines = io.StringIO(text, newline="").readlines()
        self._starts = [0, *accumulate(len(line) for line in self._lines)]

    def from_module(self, node: ast.ImportFrom, target: str) -> Iterator[Edit]:
        """Replace the module of `from module import …`."""
        assert node.module is not None
        start = self._offset(node.lineno, node.col_offset)
        pattern = rf"(from{_SPACE}+)({_dotted(node.module)})"
        if found := re.compile(pattern).match(self._text, start):
            yield self._edit(found.start(2), found[2], target)

    def imported(self, alias: ast.alias, target: str) -> Iterator[Edit]:
        """Replace one module of `import module, …`."""
        start = self._offset(alias.lineno, alias.col_offset)
        if found := re.compile(_dotted(alias.name)).match(self._text, start):
            yield self._edit(start, found[0], target)

    def edited(self, edits: Sequence[Edit]) -> str:
        """The text with edits, which are in order and apart from each other."""
        parts, end = [], 0
        for edit in edits:
            parts += [self._text[end : edit.start], edit.new]
            end = edit.start + len(edit.old)
        return "".join([*parts, self._text[end:]])

    def _edit(self, start: int, old: str, new: str) -> Edit:
        line = next(number for number, after in enumerate(self._starts[1:], start=1) if start < after)
        return Edit(line, start, old, new)

    def _offset(self, line: int, column_bytes: int) -> int:
        """The tree counts columns in bytes of UTF-8."""
        before = self._lines[line - 1].encode()[:column_bytes].decode()
        return self._starts[line - 1] + len(before)


def _dotted(module: str) -> str:
    return rf"{_SPACE}*\.{_SPACE}*".join(re.escape(word) for word in module.split("."))
