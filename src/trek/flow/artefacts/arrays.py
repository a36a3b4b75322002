"""NumPy arrays and torch tensors, alone or in a dict by name. Arrays are mapped, and so not copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.flow.artefacts.base import ArtefactKind, is_instance


class ArrayKind(ArtefactKind):
    """A NumPy array, or a dict of them: one `.npy` file each, mapped read-only."""

    def accepts(self, value: Any) -> bool:
        """Whether it is an array or NumPy number, or a dict of arrays only."""
        return _is_one_or_dict(value, lambda one: is_instance(one, "numpy", "ndarray", "generic"))

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Write `.npy` files; arrays of Python objects are refused, since only pickle could hold them."""
        import numpy as np

        folder.mkdir(parents=True)
        arrays, facts = _named(value)
        for index, array in enumerate(arrays):
            if isinstance(array, np.ma.MaskedArray):
                raise InputError("a masked array cannot be stored with its mask. Return its data and its mask.")
            if np.asarray(array).dtype.hasobject:
                raise InputError("an array of Python objects cannot be stored. Return numbers, text or a Table.")
            np.save(folder / f"{index}.npy", array, allow_pickle=False)
        return facts

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """Read-only views of the files."""
        import numpy as np

        def load_one(index: int) -> Any:
            array = np.load(folder / f"{index}.npy", mmap_mode="r", allow_pickle=False)
            return array[()] if array.ndim == 0 else array

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
        ready = {str(index): tensor.detach().cpu().contiguous() for index, tensor in enumerate(tensors)}
        save_file({name: tensor.clone() for name, tensor in ready.items()}, self.path(folder, facts))
        return facts

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """Tensors on the CPU."""
        from safetensors.torch import load_file

        tensors = load_file(self.path(folder, facts))
        return _unnamed(facts, lambda index: tensors[str(index)])

    def path(self, folder: Path, facts: dict[str, Any]) -> Path:
        """The file."""
        return folder / "tensors.safetensors"


def _is_one_or_dict(value: Any, is_one: Any) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(isinstance(key, str) for key in value) and all(map(is_one, value.values()))
    return bool(is_one(value))


def _named(value: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(value, dict):
        return list(value.values()), {"names": list(value)}
    return [value], {"names": None}


def _unnamed(facts: dict[str, Any], load_one: Any) -> Any:
    if facts["names"] is None:
        return load_one(0)
    return {name: load_one(index) for index, name in enumerate(facts["names"])}
