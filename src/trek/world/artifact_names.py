"""Names of artifacts, and what kind of content a name stands for. One place for runs, the control plane and clients."""

from __future__ import annotations

import re

from trek.errors import InputError

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
