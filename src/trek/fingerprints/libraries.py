"""Data of libraries by content: arrays, tensors, generators, frames, Arrow. Nothing is imported that is not loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trek.fingerprints.reader import Reader

Rule = Callable[["Reader", Any, str], list[str] | None]


def spell(reader: Reader, value: Any, where: str) -> list[str] | None:
    """The tokens that stand for `value`; None if no rule for its library applies."""
    for base in type(value).__mro__:
        rule = _RULES.get(base.__module__.partition(".")[0])
        if rule is not None and (tokens := rule(reader, value, where)) is not None:
            return [reader.spell(type(value), where=where), *tokens]
    return None


def digest_bytes(content: Any) -> str:
    """A digest of anything that has bytes in a row."""
    return hashlib.sha256(content).hexdigest()


def _numpy(reader: Reader, value: Any, where: str) -> list[str] | None:
    import numpy as np

    if isinstance(value, np.ufunc):
        return [str(value.__name__)]
    if not isinstance(value, np.ndarray | np.generic):
        return None
    if isinstance(value, np.ndarray) and type(value) not in (np.ndarray, np.memmap):
        return None  # a subclass may hold more, such as a mask
    return [str(value.shape), *_array(reader, np.asarray(value), where)]


def _array(reader: Reader, array: Any, where: str) -> Iterator[str]:
    import numpy as np

    yield reader.spell(repr(array.dtype.descr) if array.dtype.fields else array.dtype.str, where=where)
    if array.dtype.hasobject or array.dtype.char == "T":  # what lies in memory are addresses
        yield reader.spell(array.ravel().tolist(), where=where)
    else:
        yield digest_bytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def _torch(reader: Reader, value: Any, where: str) -> list[str] | None:
    import torch

    if isinstance(value, torch.Tensor):
        return _tensor(reader, value, where)
    if isinstance(value, torch.Generator):
        return [str(value.device), *_tensor(reader, value.get_state(), where)]
    if hasattr(value, "_orig_mod") and type(value).__name__ == "OptimizedModule":  # what torch.compile gives
        return [reader.spell(value._orig_mod, where=where)]
    is_plain = isinstance(value, torch.nn.Module) and not isinstance(value, torch.jit.ScriptModule)
    return _module(reader, value, where) if is_plain else None


def _module(reader: Reader, value: Any, where: str) -> list[str] | None:
    """By class and state; hooks have running numbers as keys, which other modules of the process change."""
    state = value.__getstate__()
    if not isinstance(state, dict) or any("__reduce__" in vars(base) for base in type(value).__mro__[:-1]):
        return None
    tokens = []
    for name, item in sorted(state.items()):
        is_hooks = "_hooks" in name and isinstance(item, dict)
        tokens += [name, reader.spell(list(item.values()) if is_hooks else item, where=f"{where}.{name}")]
    return tokens


def _tensor(reader: Reader, value: Any, where: str) -> list[str]:
    import torch

    tensor = value.detach()
    tokens = [str(tensor.dtype), str(tuple(tensor.shape)), str(tensor.layout), str(value.requires_grad)]
    if tensor.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        return [*tokens, *_sparse(reader, tensor, where)]
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        return reader.unknown_value(value, where)
    own = {name: item for name, item in vars(value).items() if name != "_backward_hooks"}
    plain = tensor.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return [*tokens, digest_bytes(plain.view(torch.uint8).numpy()), reader.spell(own, where=where)]


def _sparse(reader: Reader, tensor: Any, where: str) -> Iterator[str]:
    import torch

    if tensor.layout == torch.sparse_coo:
        parts = [tensor.coalesce().indices(), tensor.coalesce().values()]
    elif tensor.layout == torch.sparse_csr:
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    else:
        parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    for part in parts:
        yield from _tensor(reader, part, where)


def _pandas(reader: Reader, value: Any, where: str) -> list[str] | None:
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        columns = [value.iloc[:, index].array for index in range(value.shape[1])]
        return [reader.spell([value.columns, value.index, columns, value.attrs], where=where)]
    if isinstance(value, pd.Series):
        return [reader.spell([value.name, value.index, value.array, value.attrs], where=where)]
    if isinstance(value, pd.MultiIndex):
        return [reader.spell([list(value.names), list(value.levels), list(value.codes)], where=where)]
    if isinstance(value, pd.RangeIndex):
        return [reader.spell([value.name, value.start, value.stop, value.step], where=where)]
    if isinstance(value, pd.Index):
        freq = getattr(value, "freqstr", None)
        return [reader.spell([value.name, value.array, freq], where=where)]
    if isinstance(value, pd.arrays.NumpyExtensionArray):
        return [reader.spell(value.to_numpy(), where=where)]
    return None


def _polars(reader: Reader, value: Any, where: str) -> list[str] | None:
    if not hasattr(value, "__arrow_c_stream__") or not hasattr(value, "to_arrow"):
        return None
    name, kinds = getattr(value, "name", None), getattr(value, "schema", getattr(value, "dtype", None))
    return [str(name), str(kinds), reader.spell(value.to_arrow(), where=where)]


def _pyarrow(reader: Reader, value: Any, where: str) -> list[str] | None:
    import pyarrow as pa

    if isinstance(value, pa.Table | pa.RecordBatch):
        table = value if isinstance(value, pa.Table) else pa.Table.from_batches([value])
        columns = zip(table.schema, table.columns, strict=True)
        metadata = table.schema.metadata
        return [reader.spell(metadata, where=where), *(token for one in columns for token in _column(reader, *one))]
    if isinstance(value, pa.Array | pa.ChunkedArray):
        whole = value if isinstance(value, pa.ChunkedArray) else pa.chunked_array([value])
        return list(_column(reader, pa.field("value", value.type), whole))
    return None


def _column(reader: Reader, field: Any, column: Any) -> Iterator[str]:
    """A column by its values, however it is divided into chunks."""
    import pyarrow as pa

    yield repr((field.name, str(field.type), field.nullable, field.metadata, len(column), column.null_count))
    stored = column.cast(field.type.storage_type) if isinstance(field.type, pa.ExtensionType) else column
    if not column.null_count and pa.types.is_primitive(stored.type):
        yield from _array(reader, stored.to_numpy(), field.name)
        return
    digest = _Digest()
    whole = pa.table({"value": stored}).combine_chunks()
    with pa.ipc.new_stream(pa.PythonFile(digest, mode="w"), whole.schema) as writer:
        writer.write_table(whole)
    yield digest.hexdigest()


class _Digest:
    """A file that keeps a digest of what is written to it."""

    closed = False

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.hexdigest = self._hash.hexdigest

    def write(self, content: Any) -> int:
        self._hash.update(content)
        return len(content)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""


_RULES: dict[str, Rule] = {
    "numpy": _numpy,
    "torch": _torch,
    "pandas": _pandas,
    "polars": _polars,
    "pyarrow": _pyarrow,
}
"""By the first word of the module in which a class, or one that it is derived from, is defined."""
