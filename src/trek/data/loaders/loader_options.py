"""Options of a DataLoader: which exist, and which exclude each other."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping

from torch.utils.data import DataLoader as TorchDataLoader

from trek.errors import InputError

_OWN = {"global_batch_size", "tail", "columns", "is_sharded"}


def require_options(names: Iterable[str]) -> None:
    """Refuse what neither this DataLoader nor torch's knows, and name what may have been meant."""
    known = {*inspect.signature(TorchDataLoader).parameters, *_OWN} - {"self"}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(sorted(known))}."
            raise InputError(f"DataLoader has no option {name!r}. {hint}")


def require_one_order(given: Mapping[str, bool], *, has_batch_sampler: bool) -> None:
    """Refuse options that decide the same thing; `given` says which of them were."""
    if given["sampler"] and given["shuffle"]:
        raise InputError("sampler and shuffle=True both decide the order of the rows. Give one of them.")
    extra = [name for name, is_given in given.items() if is_given]
    if has_batch_sampler and extra:
        raise InputError(f"batch_sampler decides the batches, so {extra[0]} has no effect beside it. Leave it out.")
