"""Sparse gradients, of `nn.Embedding(sparse=True)` and the like: which parameters have them, and their mean over ranks.

As in torch's DistributedDataParallel, they are known by the module that has the parameter.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


def sparse_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of `model` that get sparse gradients, by name."""
    return {
        f"{name}.weight".removeprefix("."): weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
        if isinstance(weight := module.weight, nn.Parameter) and weight.requires_grad
    }


@torch.no_grad()
def average_sparse(parameter: nn.Parameter, *, num_ranks: int) -> None:
    """Replace the sparse gradient by its mean over ranks, with every row once; all None stays None."""
    grad = parameter.grad
    if grad is not None and not grad.is_sparse:
        grad = grad.to_sparse(1)
    own = torch.tensor([-1 if grad is None else grad._values().shape[0]], device=parameter.device)
    counts = [torch.empty_like(own) for _ in range(num_ranks)]
    dist.all_gather(counts, own)
    rows = [int(count) for count in counts]
    if max(rows) < 0:
        return
    indices = _gather(grad._indices()[0] if grad is not None else None, rows, like=own.new_empty(0))
    values = _gather(grad._values() if grad is not None else None, rows, like=parameter[:0])
    mean = torch.sparse_coo_tensor(indices[None], values, parameter.shape, check_invariants=False).coalesce()
    parameter.grad = mean / num_ranks


def gather_rows(
    ids: torch.Tensor, values: torch.Tensor, *, num_ranks: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """The ids and rows of all ranks, those of the first rank first."""
    own = torch.tensor([len(ids)], device=device)
    counts = [torch.empty_like(own) for _ in range(num_ranks)]
    dist.all_gather(counts, own)
    rows = [int(count) for count in counts]
    return (
        _gather(ids.to(device), rows, like=own.new_empty(0)),
        _gather(values.to(device), rows, like=values[:0].to(device)),
    )


def _gather(own: torch.Tensor | None, rows: list[int], *, like: torch.Tensor) -> torch.Tensor:
    """The rows of all ranks one after another; `like` has their form."""
    padded = like.new_zeros((max(rows), *like.shape[1:]))
    if own is not None:
        padded[: len(own)] = own
    parts = [torch.empty_like(padded) for _ in rows]
    dist.all_gather(parts, padded)
    return torch.cat([part[: max(0, count)] for part, count in zip(parts, rows, strict=True)])
