"""NoStarter: stands where a gang has its starter, for one that was attached to without its spec. For every engine."""

from __future__ import annotations

from trek.engines.hosts import AssignedRank
from trek.engines.member import Member
from trek.errors import InputError


class NoStarter:
    """A gang that was attached to without its spec cannot get new members."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members

    def assign(self, role: str, count: int) -> list[AssignedRank]:
        """The members there are."""
        known = [member for member in self._members if member.role == role]
        if count > len(known):
            raise InputError("a gang that was attached to cannot grow. Stop it and start a new one.")
        return [AssignedRank(member.rank, member.host, member.rank, count, count, role) for member in known[:count]]

    def start_member(self, assigned: AssignedRank) -> Member:
        """Never called: `assign` returns no new member."""
        raise AssertionError(f"{assigned.role} {assigned.rank} is already there")

    @property
    def secret(self) -> str:
        """Not known: this process did not start the gang."""
        raise InputError("the secret of a gang that was attached to without its spec is not known.")

    def addresses(self, role: str) -> list[str]:
        """Not known: this process did not start the gang."""
        raise InputError(f"where the {role} of a gang that was attached to listens is not known. Start a new one.")

    def outlives_workers(self, role: str) -> bool:
        """No: none of them can be restarted from here."""
        return False

    def resized(self, role: str, count: int) -> None:
        """Nothing to record: this process did not start the gang."""
