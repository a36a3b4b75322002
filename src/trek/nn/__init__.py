"""Modules whose rows live in tables: on parameter servers with strategy `ps`, in this process otherwise."""

from __future__ import annotations

from trek.ps.embedding import Embedding, EmbeddingBag

__all__ = ["Embedding", "EmbeddingBag"]
