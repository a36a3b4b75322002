"""`pq.api`: many texts to a server, in batches, again where it is busy, over `trek.serve.batch_inference`.

The server is TorchServe or `trek serve` with an archive of `pq.serve`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import httpx
import numpy as np
import pandas as pd

import trek
from trek.compat.pytorch_quik.utils import txt_format
from trek.errors import InputError

URL = "http://127.0.0.1:8080/predictions/my_tc"
"""Where TorchServe answers for a model that it was started with as `my_tc`."""
JSON_HEADER = {"Content-Type": "application/json"}


class _Connection(Protocol):
    """One end of a `multiprocessing.Pipe`."""

    def send(self, obj: Any, /) -> None: ...


def split_and_format(arr: Any, length: int) -> list[str]:
    """The bodies of requests with at most `length` texts each: see `pq.utils.txt_format`."""
    if length < 1:
        raise InputError(f"length must be at least 1, got {length}.")
    texts = np.asarray(arr).reshape(-1)
    return [txt_format(texts[start : start + length]) for start in range(0, len(texts), length)]


def requests_session() -> httpx.Client:
    """A session, for the connection to be used again. Close it."""
    return httpx.Client(headers=JSON_HEADER, timeout=60.0, trust_env=False)


def request_post(url: str, data_batch: str, sesh: httpx.Client, conn: _Connection, num: int) -> None:
    """Send one body of `split_and_format` to a server, and its answers as `(num, rows)` through a pipe."""
    records = json.loads(data_batch)["instances"]
    frame = trek.serve.batch_inference(records, url=url, batch_size=len(records), session=sesh, show_progress=False)
    conn.send((num, frame.to_dict(orient="records")))


class ServeRequest:
    """An array of texts for the server at `url`."""

    def __init__(self, text: Any, batch_size: int, url: str) -> None:
        self.text = np.asarray(text).reshape(-1)
        self.batch_size = batch_size
        self.url = url

    def requests_session(self) -> httpx.Client:
        """See `requests_session`."""
        return requests_session()

    def batch_inference(self) -> pd.DataFrame:
        """A row for each text, in order: `prediction` and `logits`."""
        return self._ask(None)

    def _ask(self, labels: Mapping[int, str] | None) -> pd.DataFrame:
        records = [{"data": str(one)} for one in self.text]
        with self.requests_session() as session:
            return trek.serve.batch_inference(
                records, labels, url=self.url, batch_size=self.batch_size, session=session, show_progress=False
            )


def batch_inference(
    responses: Any, indexed_labels: Mapping[int, str], batch_size: int, *, url: str = URL
) -> pd.DataFrame:
    """A row for each text, in order: its `label`, `prediction` and `logits`."""
    return ServeRequest(responses, batch_size, url)._ask(indexed_labels)
