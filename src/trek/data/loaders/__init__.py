"""Loaders: batches for one rank of a World, resumable at any batch, equal in number on every rank."""

from trek.data.loaders.base import Batch, Loader
from trek.data.loaders.dataloader import DataLoader, as_loader

__all__ = ["Batch", "DataLoader", "Loader", "as_loader"]
