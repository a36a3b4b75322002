"""Which checkpoints to keep: a pure decision over what is known of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trek.errors import ConfigError


@dataclass(frozen=True)
class Kept:
    """A checkpoint that exists. `score` is smaller for the better, None when nothing was measured at its point."""

    name: str
    batches: int
    score: float | None


@dataclass(frozen=True)
class KeepPolicy:
    """Keep the `best` by score, the `last`, and each whose number of batches is a multiple of `every`."""

    best: int = 1
    last: int = 1
    every: int | None = None

    def __post_init__(self) -> None:
        if self.best < 0 or self.last < 1:
            raise ConfigError(
                f"a keep policy needs best >= 0 and last >= 1, got best={self.best}, last={self.last}: without the "
                "last checkpoint a run cannot be resumed."
            )
        if self.every is not None and self.every < 1:
            raise ConfigError(f"a keep policy keeps every so many batches, at least 1, got every={self.every}.")

    def expired(self, kept: Sequence[Kept]) -> list[str]:
        """Names that may go, of checkpoints in the order they were written."""
        stays = {c.name for c in kept[-self.last :]}
        stays |= {c.name for c in ranked(kept)[: self.best]}
        if self.every:
            stays |= {c.name for c in kept if c.batches % self.every == 0}
        return [c.name for c in kept if c.name not in stays]


def ranked(kept: Sequence[Kept]) -> list[Kept]:
    """Those with a score, the best first; the earliest of equals."""
    measured = [(c.score, c.batches, c) for c in kept if c.score is not None]
    return [c for _, _, c in sorted(measured, key=lambda one: one[:2])]
