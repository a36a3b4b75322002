"""Which variables of the control plane's own environment its trials do not inherit. Pure.

A trial runs somebody's code. It gets an address and a token of its own; those of the control plane, and the way to its
database, are not for it. Everything else (PATH, proxies, credentials of object stores) a trial may need.
"""

from __future__ import annotations

from collections.abc import Iterable

_FOR_TRIALS = ("TREK_DATA_MIRROR", "TREK_DEVICE", "TREK_FAULTS", "TREK_SSH", "TREK_WARM_DIR", "TREK_WARM_START")
_OF_DATABASES = ("DATABASE_URL", "PGPASSFILE", "PGPASSWORD", "PGSERVICE", "PGSERVICEFILE")


def private_variables(names: Iterable[str]) -> list[str]:
    """The names among `names` that stay with the control plane."""
    return sorted(
        name for name in names if (name.startswith("TREK_") and name not in _FOR_TRIALS) or name in _OF_DATABASES
    )
