"""Progress bars on long actions: shown on a terminal, silent in logs and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    _Base = tqdm[None]
else:
    _Base = tqdm


class ProgressBar(_Base):
    """tqdm without its monitor thread, which would outlive the bar."""

    monitor_interval = 0


def progress_bar(
    total: int | None, *, title: str, unit: str, is_shown: bool = True, delay_s: float = 0.0
) -> ProgressBar:
    """A bar on stderr for `total` units, or a count without a total, once `delay_s` have passed; use it in a `with`."""
    hidden = None if is_shown else True  # None: hidden unless stderr is a terminal
    return ProgressBar(total=total, desc=title, unit=unit, unit_scale=True, leave=False, delay=delay_s, disable=hidden)
