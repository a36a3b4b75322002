"""PushLedger: the last push of every source, by which a server applies every push once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trek.errors import InputError


class PushId(NamedTuple):
    """The identity of a push among those of its source."""

    sequence: int
    """Its number, from 1. The numbers of a source increase."""
    digest: bytes = b""
    """A hash of its contents; empty for a push that may be computed again, to something else."""


class PushLedger:
    """The last push of every source."""

    def __init__(self) -> None:
        self._last: dict[str, PushId] = {}

    def has(self, source: str, push: PushId) -> bool:
        """Whether a push was applied before; InputError if its number was used for a push with other contents."""
        last = self._last.get(source)
        if last is None or push.sequence > last.sequence:
            return False
        if push.sequence == last.sequence and push.digest and last.digest and push.digest != last.digest:
            raise InputError(
                f"push {push.sequence} of source {source!r} was applied with other contents, so this one was not. A "
                "number belongs to one push: take the next one, and a source of its own for every client."
            )
        return True

    def note(self, source: str, push: PushId) -> None:
        """A push was applied."""
        self._last[source] = push

    def reached(self, source: str) -> int:
        """The number of the last push of a source; 0 without one."""
        last = self._last.get(source)
        return last.sequence if last is not None else 0

    def sequences(self, prefix: str = "") -> dict[str, int]:
        """The number of the last push of every source whose name begins with `prefix`."""
        return {source: last.sequence for source, last in self._last.items() if source.startswith(prefix)}

    def digests(self) -> dict[str, str]:
        """The digests of the last pushes that have one, as text."""
        return {source: last.digest.hex() for source, last in self._last.items() if last.digest}

    def merge(self, sequences: Mapping[str, int], digests: Mapping[str, str]) -> None:
        """Add the ledger of another server; the later push of a source counts."""
        for source, sequence in sequences.items():
            if sequence > self.reached(source):
                self._last[source] = PushId(sequence, bytes.fromhex(digests.get(source, "")))

    def forget(self, prefix: str) -> None:
        """Forget the sources whose name begins with `prefix`."""
        self._last = {source: last for source, last in self._last.items() if not source.startswith(prefix)}
