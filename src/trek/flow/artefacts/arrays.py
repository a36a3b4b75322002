"""NumPy arrays and torch tensors, alone or in a dict by name. Arrays are mapped: a page is copied when it is changed.

What would come back as something else, such as a subclass, is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.flow.artefacts.base import ArtefactKind, is_instance


class ArrayKind(ArtefactKind):
    """A NumPy array, or a dict of them: one `.npy` file each. A step may change its array; the file stays as it is."""

    def accepts(self, value: Any) -> bool:
        """Whether it is an array or NumPy number, or a dict of arrays only."""
        return _is_one_or_dict(value, lambda one: is_instance(one, "numpy", "ndarray", "generic"))

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Write `.npy` files; arrays of Python objects are refused, since only pickle could hold them."""
        import numpy as np

        folder.mkdir(parents=True)
        arrays, facts = _named(value)
        for index, array in enumerate(arrays):
            _check_array(array)
            np.save(folder / f"{index}.npy", array, allow_pickle=False)
        points = [index for index, array in enumerate(arrays) if isinstance(array, np.ndarray) and array.ndim == 0]
        return {**facts, "points": points} if points else facts

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """Arrays over the files, whose changes stay in memory."""
        import numpy as np

        def load_one(index: int) -> Any:
            array = np.load(folder / f"{index}.npy", mmap_mode="c", allow_pickle=False)
            is_number = array.ndim == 0 and index not in facts.get("points", ())
            return array[()] if is_number else array

        return _unnamed(facts, load_one)

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """The file, or the folder of files."""
        return folder if facts["names"] is not None else folder / "0.npy"


class TensorKind(ArtefactKind):
    """A torch tensor, or a dict of them such as a model's weights: one safetensors file."""

    def accepts(self, value: Any) -> bool:
        """Whether it is a tensor, or a dict of tensors only."""
        return _is_one_or_dict(value, lambda one: is_instance(one, "torch", "Tensor"))

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Write them from the CPU."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True)
        tensors, facts = _named(value)
        save_file({str(index): _plain(tensor) for index, tensor in enumerate(tensors)}, self.path(folder, facts))
        return {**facts, **_traits(tensors)}

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """Tensors on the CPU, without the graph that computed them."""
        import torch
        from safetensors.torch import load_file

        tensors = load_file(self.path(folder, facts))

        def load_one(index: int) -> Any:
            tensor, has_grad = tensors[str(index)], index in facts.get("with_grad", ())
            is_parameter = index in facts.get("parameters", ())
            return torch.nn.Parameter(tensor, has_grad) if is_parameter else tensor.requires_grad_(has_grad)

        return _unnamed(facts, load_one)

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """The file."""
        return folder / "tensors.safetensors"


def _check_array(array: Any) -> None:
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise InputError("a masked array cannot be stored with its mask. Return its data and its mask.")
    if isinstance(array, np.ndarray) and type(array) not in (np.ndarray, np.memmap):
        raise InputError(f"a {type(array).__name__} cannot be stored as such. Return numpy.asarray() of it.")
    if np.asarray(array).dtype.hasobject:
        raise InputError("an array of Python objects cannot be stored. Return numbers, text or a Table.")


def _plain(tensor: Any) -> Any:
    """A copy of the tensor's numbers on the CPU; InputError if a file cannot hold them."""
    import torch
    from safetensors.torch import _SIZE as STORED  # the types that its files have, which nothing public lists

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise InputError(f"a {type(tensor).__name__} cannot be stored as such. Return as_subclass(torch.Tensor) of it.")
    if tensor.layout != torch.strided or tensor.is_nested:
        raise InputError("a sparse or nested tensor cannot be stored. Return to_dense() of it, or its parts.")
    if tensor.is_quantized:
        raise InputError(f"a quantized tensor ({tensor.dtype}) cannot be stored. Return dequantize() of it.")
    if tensor.is_meta:
        raise InputError("a tensor on the device 'meta' has no values that can be stored. Return its shape.")
    if tensor.dtype not in STORED:
        raise InputError(
            f"a tensor of {tensor.dtype} cannot be stored. Convert it, or return torch.view_as_real() of it."
        )
    return tensor.detach().cpu().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _traits(tensors: list[Any]) -> dict[str, Any]:
    """Which are parameters, and which want a gradient by themselves; nothing where none is either."""
    import torch

    traits = {
        "parameters": [index for index, one in enumerate(tensors) if isinstance(one, torch.nn.Parameter)],
        "with_grad": [index for index, one in enumerate(tensors) if one.is_leaf and one.requires_grad],
    }
    return {name: indices for name, indices in traits.items() if indices}


def _is_one_or_dict(value: Any, is_one: Any) -> bool:
    if type(value) in (dict, OrderedDict):
        return bool(value) and all(isinstance(key, str) for key in value) and all(map(is_one, value.values()))
    return bool(is_one(value))


def _named(value: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(value, dict):
        is_ordered = {"is_ordered": True} if isinstance(value, OrderedDict) else {}
        return list(value.values()), {"names": list(value), **is_ordered}
    return [value], {"names": None}


def _unnamed(facts: dict[str, Any], load_one: Any) -> Any:
    if facts["names"] is None:
        return load_one(0)
    made = OrderedDict if facts.get("is_ordered") else dict
    return made((name, load_one(index)) for index, name in enumerate(facts["names"]))
