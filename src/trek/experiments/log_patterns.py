"""The patterns of log policies, matched in time that is linear in the length of a line, whatever the pattern.

Python's own `re` takes time that is exponential in the length of a line for some patterns, and holds up the whole
process meanwhile. RE2 has no such patterns; in exchange it has neither lookaround nor backreferences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import re2

from trek.errors import InputError

MAX_PATTERN_CHARS = 1000
MAX_PATTERNS = 32
_MAX_BYTES = 1 << 20
"""What one compiled pattern may take; beyond it, matching is slower, not larger."""


class LogPatterns:
    """Several patterns that are searched for together. InputError for the first that is not supported."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [compile_pattern(pattern) for pattern in patterns]

    def first_match(self, lines: Sequence[str]) -> str | None:
        """The first line that one of the patterns matches."""
        return next((line for line in lines for pattern in self._patterns if pattern.search(line)), None)


def compile_pattern(pattern: str) -> re2._Regexp[str]:
    """The compiled pattern; InputError with the reason if RE2 does not support it."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise InputError(
            f"the pattern has {len(pattern)} characters, but at most {MAX_PATTERN_CHARS} are supported. Shorten it."
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise InputError(
            f"the pattern {pattern!r} is not a valid regular expression in RE2's syntax: {reason}. "
            "Lookaround, backreferences and \\Z are not supported; use plain groups, and \\z for the end."
        ) from None
    except UnicodeEncodeError:
        raise InputError(f"the pattern {pattern!r} is not valid text. Remove its surrogate characters.") from None
