"""The code of models: imported from the folder that the caller named, and from nowhere that a checkpoint names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.errors import InputError, TrekError
from trek.serve.model_source import ModelSource

if TYPE_CHECKING:
    from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
    from trek.train.trial import Trial


def import_trial(checkpoint: CheckpointFolder, source: ModelSource) -> type[Trial]:
    """The Trial of a checkpoint, imported from the folder of code and from nowhere else."""
    from trek.train.trial import Trial  # loads torch, which functions may not need

    description = checkpoint.manifest.get("trial") or {}
    named = source.trial or str(description.get("entrypoint", ""))
    module, separator, name = named.partition(":")
    if not separator:
        raise InputError(
            f"checkpoint {checkpoint.path} was saved by an explicit loop, which says nothing about how its model is "
            "called. Serve module:function instead."
        )
    folder = Path(source.code)
    if not _is_in(folder, module):
        raise InputError(
            f"the Trial {named} of checkpoint {checkpoint.path} is not in {str(folder)!r}. Pass the folder with its "
            "code (--code), or its module and class (--trial module:Class)."
        )
    found: Any = import_object(f"{module}:{name}", folder)
    if not (isinstance(found, type) and issubclass(found, Trial)):
        raise InputError(f"{named} is not a Trial. Pass another one with --trial module:Class.")
    return found


def code_files(module: str, folder: Path) -> dict[str, Path]:
    """The Python files of a model by their names in its folder: its package, or its file and those beside it."""
    package = module.split(".")[0]
    root = folder if (folder / package).is_dir() or (folder / f"{package}.py").is_file() else _root_of(module)
    found = sorted((root / package).rglob("*.py")) if (root / package).is_dir() else sorted(root.glob("*.py"))
    return {str(path.relative_to(root)): path for path in found}


def _root_of(module: str) -> Path:
    """The folder that an imported module is from; InputError if it is not imported."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise InputError(f"the module {module!r} was not found. Name the folder of the model's code (--code).")
    path = Path(file).resolve()
    return path.parents[len(module.split(".")) - (path.name != "__init__.py")]


def import_object(address: str, folder: Path) -> Any:
    """`module:name`, with `folder` first on the import path; InputError if there is none, or it fails to import."""
    module, _, name = address.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except TrekError:
        raise
    except ModuleNotFoundError as error:
        raise InputError(
            f"{address!r} cannot be imported from {str(folder)!r}: {error}. Name the folder of its code (--code)."
        ) from error
    except AttributeError as error:
        raise InputError(f"{address!r} does not exist: {error}.") from error
    except Exception as error:
        raise InputError(f"importing {address!r} failed: {type(error).__name__}: {error}.") from error
    return found


def _is_in(folder: Path, module: str) -> bool:
    base = folder.joinpath(*module.split("."))
    is_imported = getattr(sys.modules.get(module), "__file__", None)
    is_there = base.with_suffix(".py").is_file() or (base / "__init__.py").is_file()
    return is_there or (is_imported is not None and Path(is_imported).resolve().is_relative_to(folder.resolve()))
