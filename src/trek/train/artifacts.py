"""Artifacts: files of a user's own, kept with the run. A value becomes a file by what it is and by its name's suffix.

Owns their names, how values become bytes, and what kind of content a name stands for. Where the file goes afterwards is
the loggers' concern.
"""

from __future__ import annotations

import io
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.system.disk import storage_errors

_REMEDY = "Free some space, or log smaller artifacts."
MAX_BYTES = 64 * 2**20
"""The largest artifact that a control plane keeps."""
MAX_NAME = 160
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. \-+=@,()]*")
# What browsers show without ever running it. SVG and HTML are not among them: they may hold scripts.
_SHOWN = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}
OTHER_CONTENT = "application/octet-stream"
_FIGURES = ("png", "jpg", "jpeg", "pdf", "svg", "webp")


def store_artifact(value: Any, name: str | None, *, folder: Path) -> tuple[str, Path]:
    """Write `value` below `folder` as the artifact `name`; returns the name and the file.

    A name may be left out for a file, which then keeps its own.
    """
    if name is None and isinstance(value, str | os.PathLike):
        name = Path(value).name
    if name is None:
        raise InputError(f"log_artifact needs a name for a {type(value).__name__}, such as 'plots/loss.png'.")
    content = artifact_bytes(value, artifact_name(name))
    path = folder / name
    with storage_errors(path, remedy=_REMEDY):
        if path.is_dir() or any(parent.is_file() for parent in path.parents if parent.is_relative_to(folder)):
            raise InputError(f"artifact {name!r} cannot be stored: another one uses a part of its name as a file.")
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".{secrets.token_hex(8)}")
        written.write_bytes(content)
        written.replace(path)
    return name, path


def artifact_name(name: str) -> str:
    """`name`, if an artifact may have it: parts of letters, digits and `_.-+=@,()` or spaces, separated by `/`."""
    parts = name.split("/") if isinstance(name, str) else []
    if not parts or len(name) > MAX_NAME or not all(_PART.fullmatch(part) and part[-1] != " " for part in parts):
        raise InputError(
            f"invalid name of an artifact {str(name)[:80]!r}: it must have at most {MAX_NAME} characters, in parts "
            "separated by '/' that begin with a letter, a digit or '_' and contain only those and '.-+=@,() '."
        )
    return name


def content_type(name: str) -> str:
    """How the artifact is sent: images as what they are, everything else as bytes to download."""
    return _SHOWN.get(name.rpartition(".")[2].lower(), OTHER_CONTENT)


def artifact_bytes(value: Any, name: str) -> bytes:
    """`value` as the content of a file called `name`: a path, bytes, a figure, a table, or an image."""
    suffix = name.rpartition(".")[2].lower()
    for is_kind, to_bytes in _KINDS:
        if is_kind(value):
            return to_bytes(value, suffix)
    raise InputError(
        f"log_artifact cannot store a {type(value).__name__}. Pass a path, bytes, a matplotlib figure, a pandas or "
        "Arrow table, or an image as a PIL image, an array or a tensor."
    )


def _file(value: Any, suffix: str) -> bytes:
    path = Path(value)
    if not path.is_file():
        raise InputError(f"artifact {str(path)!r} not found. Pass the path of a file, or bytes.")
    return path.read_bytes()


def _figure(value: Any, suffix: str) -> bytes:
    if suffix not in _FIGURES:
        raise InputError(f"a figure must be stored as one of {', '.join(_FIGURES)}, got the suffix {suffix!r}.")
    buffer = io.BytesIO()
    value.savefig(buffer, format=suffix)
    return buffer.getvalue()


def _frame(value: Any, suffix: str) -> bytes:
    if suffix == "csv":
        return bytes(value.to_csv(index=False).encode())
    if suffix == "json":
        return bytes(value.to_json(orient="records").encode())
    if suffix == "parquet":
        return bytes(value.to_parquet(index=False))
    raise InputError(f"a table must be stored as csv, json or parquet, got the suffix {suffix!r}.")


def _image(value: Any, suffix: str) -> bytes:
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("images need the package pillow. Run `pip install pillow`, or pass bytes.") from error
    image = value if hasattr(value, "save") else Image.fromarray(_pixels(value))
    buffer = io.BytesIO()
    try:
        image.save(buffer, format={"jpg": "JPEG"}.get(suffix, suffix.upper()))
    except (KeyError, ValueError, OSError) as error:
        raise InputError(f"this image cannot be stored with the suffix {suffix!r}: {error}. Use png.") from error
    return buffer.getvalue()


def _pixels(value: Any) -> Any:
    """Height, width, channels as bytes; tensors have their channels first, floats are from 0 to 1."""
    import numpy as np

    is_tensor = hasattr(value, "detach")
    array = np.asarray(value.detach().cpu().float() if is_tensor and value.is_floating_point() else _host(value))
    if is_tensor and array.ndim == 3:
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3):
        raise InputError(f"an image must have 2 or 3 dimensions, got the shape {tuple(array.shape)}.")
    if np.issubdtype(array.dtype, np.floating):
        array = (np.nan_to_num(array).clip(0, 1) * 255).round()
    return array.astype(np.uint8)


def _host(value: Any) -> Any:
    return value.detach().cpu() if hasattr(value, "detach") else value


# In this order; recognised by what they can do, so that none of the libraries is imported here.
_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], bytes]], ...] = (
    (lambda value: isinstance(value, bytes | bytearray | memoryview), lambda value, suffix: bytes(value)),
    (lambda value: isinstance(value, str | os.PathLike), _file),
    (lambda value: hasattr(value, "savefig"), _figure),
    (lambda value: hasattr(value, "to_csv"), _frame),
    (lambda value: hasattr(value, "to_pandas"), lambda value, suffix: _frame(value.to_pandas(), suffix)),
    (lambda value: any(hasattr(value, name) for name in ("__array__", "__array_interface__", "detach")), _image),
)
