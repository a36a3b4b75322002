"""Preparation: layers that turn raw columns into what a model takes.

Fitted on a Table, applied in a Table (`table.map(prepare)`) or inside a model, and saved with its weights.
"""

from trek.data.preparation.base import Layer, Values
from trek.data.preparation.bucketise import Bucketise
from trek.data.preparation.concatenate import ConcatenateWithOffsets
from trek.data.preparation.hashing import Hash
from trek.data.preparation.lookup import Lookup
from trek.data.preparation.normalise import Normalise
from trek.data.preparation.pipeline import Preparation
from trek.data.preparation.sparse import ToSparse

__all__ = [
    "Bucketise",
    "ConcatenateWithOffsets",
    "Hash",
    "Layer",
    "Lookup",
    "Normalise",
    "Preparation",
    "ToSparse",
    "Values",
]
