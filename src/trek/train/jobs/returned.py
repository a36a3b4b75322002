"""What a train function returns, as it travels from a process of a job to the program that started it.

The value is the same from one process as from several: plain data as in checkpoints, and DataFrames.
"""

from __future__ import annotations

import base64
from typing import Any

from trek.engines.agent import MAX_FILE_BYTES
from trek.errors import InputError
from trek.wire.values import NotPlain, from_bytes, to_bytes

_MAX_BYTES = MAX_FILE_BYTES // 4 * 3 - (1 << 20)
"""As base64 in a document with other entries, this fits into a file that a process may leave."""
_REMEDY = (
    "It may return numbers, text, bytes, tensors, NumPy arrays, DataFrames, and lists, tuples, sets and "
    "dicts of them, such as model.state_dict() for a model"
)


_KEPT = "The training itself is complete, and its checkpoints are kept."


def pack(value: Any) -> str:
    """What a train function returned as text; `InputError` if it is not plain data or too large."""
    try:
        message = to_bytes(value)
    except NotPlain as error:
        raise _refused(f"a {error.kind}" + (f" at {error.path}" if error.path else "")) from error
    except RecursionError as error:
        raise _refused(f"a {type(value).__name__} that is nested too deeply") from error
    if len(message) > _MAX_BYTES:
        raise InputError(
            f"the train function returned {len(message) >> 20} MB, and at most {_MAX_BYTES >> 20} MB can be sent "
            f"between processes. Write it to a file, or use tr.log_artifact. {_KEPT}"
        )
    return base64.b64encode(message).decode()


def unpack(text: str) -> Any:
    """The value that was passed to `pack`, with its tensors on the CPU."""
    return from_bytes(base64.b64decode(text))


def _refused(what: str) -> InputError:
    return InputError(f"the train function returned {what}, which cannot be sent between processes. {_REMEDY}. {_KEPT}")
