"""LoginLimits: how many wrong passwords may be tried, per name, per address, and by everybody together.

An attempt counts before its password is checked, so attempts that are sent at the same time count too; one that
succeeds is taken back. Counts are in memory: a restart forgets them.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trek.errors import TooManyRequests
from trek.system.clock import Clock

WINDOW_S = 60.0
MAX_PER_NAME_AND_ADDRESS = 5
MAX_PER_ADDRESS = 20
MAX_PER_NAME = 50
MAX_OVERALL = 300


@dataclass(frozen=True, eq=False)
class Attempt:
    """A password that was tried: when, for which name, from where."""

    time_s: float
    name: str
    address: str


_RULES: tuple[tuple[int, Callable[[Attempt], object]], ...] = (
    (MAX_PER_NAME_AND_ADDRESS, lambda one: (one.name, one.address)),
    (MAX_PER_ADDRESS, lambda one: one.address),
    (MAX_PER_NAME, lambda one: one.name),
    (MAX_OVERALL, lambda one: None),
)


def wait_s(attempts: Iterable[Attempt], new: Attempt) -> float:
    """How long until `new` is within every limit; 0 if it is. `attempts` are those of the window, in order. Pure."""
    known, wait = list(attempts), 0.0
    for limit, key in _RULES:
        same = [one for one in known if key(one) == key(new)]
        if len(same) >= limit:
            wait = max(wait, same[-limit].time_s + WINDOW_S - new.time_s)
    return wait


class LoginLimits:
    """The attempts of the last minute. Safe to use from several threads."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._attempts: deque[Attempt] = deque()
        self._lock = threading.Lock()

    def begin(self, name: str, *, address: str) -> Attempt:
        """Count an attempt, before its password is checked; TooManyRequests if a limit is reached."""
        new = Attempt(self._clock.monotonic_s(), name, network_of(address))
        with self._lock:
            while self._attempts and self._attempts[0].time_s <= new.time_s - WINDOW_S:
                self._attempts.popleft()
            wait = wait_s(self._attempts, new)
            if wait > 0:
                raise TooManyRequests(f"too many failed logins. Try again in {wait:.0f} seconds.", retry_after_s=wait)
            self._attempts.append(new)
        return new

    def succeeded(self, attempt: Attempt) -> None:
        """Take an attempt back: its password was right."""
        with self._lock:
            if attempt in self._attempts:
                self._attempts.remove(attempt)


def network_of(address: str) -> str:
    """What counts as one address: with IPv6 the /64 that one customer usually has. Pure."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), 64), strict=False))
