"""What steps may hand on: one file per family of values, found by the value's type."""

from trek.flow.artefacts.base import ArtefactKind
from trek.flow.artefacts.stored import Stored, join_parts, kind_of, register_kind, store_value

__all__ = ["ArtefactKind", "Stored", "join_parts", "kind_of", "register_kind", "store_value"]
