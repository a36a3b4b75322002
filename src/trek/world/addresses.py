"""Addresses of machines: which of them mean the machine that asks. Resolves no name."""

from __future__ import annotations

import ipaddress

_NAMES = {"localhost", "localhost.localdomain"}


def is_loopback(host: str) -> bool:
    """Whether `host` means "this machine" on every machine, so that no other one can reach it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in _NAMES
