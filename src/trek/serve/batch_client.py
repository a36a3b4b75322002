"""Inference over records by a server: batches of them, in order, again where the server was busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import httpx

from trek.data.progress import progress_bar
from trek.errors import InputError, OutsideError

if TYPE_CHECKING:
    import pandas as pd

RETRIED = (429, 502, 503, 504, 507)
"""The server is busy, starting, or out of memory for a moment."""


def batch_inference(
    records: Sequence[Any],
    labels: Mapping[int, str] | Sequence[str] | None = None,
    url: str = "http://127.0.0.1:8000/predict",
    batch_size: int = 32,
    *,
    key: str | None = None,
    timeout_s: float = 60.0,
    patience_s: float = 120.0,
    show_progress: bool = True,
    session: httpx.Client | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> pd.DataFrame:
    """A row for each record, in order, with the outputs of the model.

    Each record is a dict of inputs by name, as JSON holds them. With `labels`, the names of the classes of a
    classifier, a column `label` names the class of each record. A batch that the server is too busy for is sent again,
    for up to `patience_s`; OutsideError if it stays so. InputError for a record that the server refuses. `session` is
    one that is used instead of a new one, and is left open.
    """
    import pandas as pd

    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}.")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    rows: list[dict[str, Any]] = []
    own = nullcontext(session) if session else httpx.Client(headers=headers, timeout=timeout_s, trust_env=False)
    with (
        own as asked,
        progress_bar(len(records), title="inference", unit="record", is_shown=show_progress) as bar,
    ):
        for start in range(0, len(records), batch_size):
            batch = list(records[start : start + batch_size])
            rows += _send(asked, url, batch, first=start, patience_s=patience_s, sleep=sleep)
            bar.update(len(batch))
    frame = pd.DataFrame(rows)
    if labels is not None:
        frame.insert(0, "label", [_label(row, labels) for row in rows])
    return frame


def _label(row: Mapping[str, Any], labels: Mapping[int, str] | Sequence[str]) -> str:
    """The name of the class in a row: that of its `prediction`, or of the largest of its only output."""
    found = row.get("prediction", next(iter(row.values())) if len(row) == 1 else None)
    if isinstance(found, str):
        return found
    if isinstance(found, list) and found:
        found = max(range(len(found)), key=found.__getitem__)
    if isinstance(found, bool) or not isinstance(found, int):
        raise InputError(f"labels are for a classifier, and the model returned {', '.join(row) or 'nothing'}.")
    try:
        return labels[found]
    except (KeyError, IndexError):
        raise InputError(f"the model predicted class {found}, and there are {len(labels)} labels.") from None


def _send(
    session: httpx.Client, url: str, batch: list[Any], *, first: int, patience_s: float, sleep: Callable[[float], None]
) -> list[dict[str, Any]]:
    waited_s = 0.0
    for pause_s in _pauses():
        problem, asked_s = "", 0.0
        try:
            found = session.post(url, json=batch)
        except httpx.TransportError as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            if found.status_code == 200:
                return _rows(found, len(batch))
            problem = f"{found.status_code}: {_reason(found)}"
            if found.status_code not in RETRIED:
                raise InputError(f"the server refused records {first} to {first + len(batch) - 1}: {problem}")
            asked_s = float(found.headers.get("retry-after", "0")) if _is_number(found) else 0.0
        pause_s = max(pause_s, asked_s)
        waited_s += pause_s
        if waited_s > patience_s:
            raise OutsideError(f"the server at {url} did not answer within {patience_s:g} s: {problem}")
        sleep(pause_s)
    raise AssertionError("pauses never end")


def _pauses() -> Iterator[float]:
    pause_s = 0.1
    while True:
        yield pause_s
        pause_s = min(pause_s * 2, 5.0)


def _rows(found: httpx.Response, num_rows: int) -> list[dict[str, Any]]:
    rows = found.json()
    if not isinstance(rows, list) or len(rows) != num_rows:
        raise OutsideError(f"the server answered {len(rows)} rows where {num_rows} are expected.")
    return [row if isinstance(row, dict) else {"output": row} for row in rows]


def _reason(found: httpx.Response) -> str:
    try:
        return str(found.json()["error"])
    except (ValueError, KeyError, TypeError):
        return found.text[:200]


def _is_number(found: httpx.Response) -> bool:
    return str(found.headers.get("retry-after", "")).isdigit()
