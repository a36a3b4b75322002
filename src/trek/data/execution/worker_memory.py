"""The memory of worker processes, which need about as much for every batch."""

from __future__ import annotations

import ctypes
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_BYTES = 32 << 20
"""The largest that the C library takes."""
_KEPT_BYTES = 128 << 20


@cache
def keep_freed_memory() -> None:
    """Have this process use freed memory for the next batch, rather than return it and ask for new.

    As it is, the C library returns arrays of some megabytes to the system when they are freed, and touching new memory
    takes longer than most functions do.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
