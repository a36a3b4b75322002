"""Actions: what follows from a call of the membership, for whoever serves it to carry out. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Seat:
    """A member's place in a generation."""

    member: str
    rank: int
    local_rank: int
    local_size: int


@dataclass(frozen=True)
class Form:
    """A generation begins: these members, in the order of ranks."""

    generation: int
    seats: tuple[Seat, ...]
    source: str | None
    """Whose state the others take; None = the last checkpoint."""
    is_open: bool = True
    """Whether all members are at an open place."""


@dataclass(frozen=True)
class Regroup:
    """The members of this generation are to arrive at the next step boundary."""

    generation: int


@dataclass(frozen=True)
class Abandon:
    """The members of this generation are to arrive now: somebody in it is lost."""

    generation: int


@dataclass(frozen=True)
class Dismiss:
    """A member is to end: the job does not need it, or does not know it."""

    member: str
    reason: str


@dataclass(frozen=True)
class PutOut:
    """A member that does not answer is to be killed."""

    member: str
    reason: str


@dataclass(frozen=True)
class Fail:
    """The job cannot go on."""

    reason: str


Action: TypeAlias = Form | Regroup | Abandon | Dismiss | PutOut | Fail
