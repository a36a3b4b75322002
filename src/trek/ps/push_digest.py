"""The digest of a push: a hash of what it has for all servers, whatever their number is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from trek.ps.checksum import checksum_of
from trek.ps.id_index import Ids
from trek.ps.protocol.tensors import bits_of
from trek.ps.rules import Rule


def push_digest(
    dense: Mapping[str, torch.Tensor],
    rows: Mapping[str, tuple[Ids, torch.Tensor]],
    rule_of: Callable[[str], Rule],
) -> bytes:
    """Of gradients on the CPU, those of rows as float32, and their rules; in any order of names."""
    digest = 0
    for name, gradient in sorted(dense.items()):
        digest = _add(digest, f"dense {name} {rule_of(name)}", gradient)
    for table, (ids, gradients) in sorted(rows.items()):
        digest = _add(digest, f"rows {table} {rule_of(table)}", torch.from_numpy(ids))
        digest = _add(digest, "", gradients)
    return digest.to_bytes(8, "little")


def _add(digest: int, text: str, values: torch.Tensor) -> int:
    described = f"{text} {values.dtype} {tuple(values.shape)}".encode()
    content = np.ascontiguousarray(bits_of(values.contiguous())).reshape(-1).view(np.uint8)
    return checksum_of(described, content, after=digest)
