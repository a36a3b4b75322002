"""Which checkpoints to keep: a pure decision based on their metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trek.errors import ConfigError


@dataclass(frozen=True)
class KeptCheckpoint:
    """An existing checkpoint. A smaller `score` is better; it is None if there was no validation at that point."""

    name: str
    batches: int
    score: float | None


@dataclass(frozen=True)
class KeepPolicy:
    """Keep the `best` ones by score, the `last` ones, and each whose number of batches is a multiple of `every`."""

    best: int = 1
    last: int = 1
    every: int | None = None

    def __post_init__(self) -> None:
        if self.best < 0 or self.last < 1:
            raise ConfigError(
                f"a keep policy must have best >= 0 and last >= 1, got best={self.best}, last={self.last}. "
                "A run cannot be resumed without its last checkpoint."
            )
        if self.every is not None and self.every < 1:
            raise ConfigError(f"a keep policy must have every >= 1, got every={self.every}.")

    def expired(self, kept: Sequence[KeptCheckpoint]) -> list[str]:
        """Names of the checkpoints to delete; `kept` is in the order of writing."""
        retained = {c.name for c in kept[-self.last :]}
        retained |= {c.name for c in ranked(kept)[: self.best]}
        if self.every:
            retained |= {c.name for c in kept if c.batches % self.every == 0}
        return [c.name for c in kept if c.name not in retained]


def ranked(kept: Sequence[KeptCheckpoint]) -> list[KeptCheckpoint]:
    """The checkpoints with a score, the best first; of equal ones, the earlier first."""
    measured = [(c.score, c.batches, c) for c in kept if c.score is not None]
    return [c for _, _, c in sorted(measured, key=lambda one: one[:2])]
