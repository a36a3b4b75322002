"""Tables for serving: a plain `nn.Embedding` and which of its rows each id has."""

from __future__ import annotations

import torch
from torch import nn


def to_embedding(ids: torch.Tensor, rows: torch.Tensor) -> tuple[nn.Embedding, dict[int, int]]:
    """An `nn.Embedding` with the rows of a table in the order of ids, and the index of each id in it.

    The last row is the mean of all, for ids that the table does not have. `ids` and `rows` are those of a checkpoint
    (`<module>.ids`, `<module>.rows`), or of `Client.export_rows`.
    """
    order = torch.argsort(ids)
    values = rows[order].float()
    other = values.mean(0, keepdim=True) if len(values) else values.new_zeros(1, rows.shape[1])
    embedding: nn.Embedding = nn.Embedding.from_pretrained(torch.cat([values, other]))  # type: ignore[no-untyped-call]
    return embedding, {one: index for index, one in enumerate(ids[order].tolist())}
