"""GangRecord: what the starter of a gang on Ray writes down, by which another process finds it again.

A gang without an `output_dir` is never looked for, and so nothing of it is written.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trek.engines.state_files import read_state, write_state
from trek.errors import InputError

FILE = "ray.json"


@dataclass
class ActorRecord:
    """One member: the name of its actor, where it was placed, and where its part of the log begins."""

    actor: str
    role: str
    rank: int
    host: str = ""
    address: str = ""
    node: str = ""
    log_start: int = 0
    bundle: int = 0
    """Its part of the room that is reserved for the workers of a gang."""


@dataclass
class GangRecord:
    """One gang. `members` is empty until all of them have a place."""

    gang: str = field(default_factory=lambda: f"gang-{secrets.token_hex(8)}")
    secret: str = ""
    job: str = field(default_factory=lambda: secrets.token_hex(8))
    master: tuple[str, int] = ("", 0)
    addresses: dict[str, list[str]] = field(default_factory=dict)
    members: list[ActorRecord] = field(default_factory=list)

    def find(self, role: str, rank: int) -> ActorRecord | None:
        """The record of a member."""
        return next((one for one in self.members if (one.role, one.rank) == (role, rank)), None)

    def write(self, folder: Path | None) -> None:
        """Write it down, readable by its owner only, since the secret is in it."""
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        write_state(folder / FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> GangRecord:
        """The record of the gang with this `output_dir`."""
        try:
            known = read_state(folder / FILE, "members", "master")
        except FileNotFoundError:
            raise InputError(f"no gang was started with output_dir {str(folder)!r}. Start one first.") from None
        members = [ActorRecord(**one) for one in known.pop("members")]
        return cls(**{**known, "members": members, "master": tuple(known["master"])})
