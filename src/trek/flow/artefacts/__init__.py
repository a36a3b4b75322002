"""What steps may return: one file per family of values, found by the value's type."""

from trek.flow.artefacts.base import ArtefactKind
from trek.flow.artefacts.stored import (
    KINDS,
    NOTHING,
    Stored,
    check_storable,
    join_parts,
    kind_of,
    spell,
    store_value,
)

__all__ = [
    "KINDS",
    "NOTHING",
    "ArtefactKind",
    "Stored",
    "check_storable",
    "join_parts",
    "kind_of",
    "spell",
    "store_value",
]
