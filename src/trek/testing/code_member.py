"""`python -m trek.testing.code_member CODE`: runs CODE as `python -c` does, in a module that engines may start warm."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    exec(compile(sys.argv[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - a test's own code
