"""Stores: where finished checkpoints are kept."""

from trek.train.checkpointing.stores.base import MANIFEST, REMEDY, Storage
from trek.train.checkpointing.stores.store_registry import STORES, open_storage

__all__ = ["MANIFEST", "REMEDY", "STORES", "Storage", "open_storage"]
