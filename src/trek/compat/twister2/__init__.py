"""Twister2's Python names: an environment of workers, sources, and TSets over `trek.data.Table`."""

from __future__ import annotations

from trek.compat.twister2.TSetContext import TSetContext

__all__ = ["TSetContext"]
