"""What the front process does before a worker sees a request."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from trek.listening.limited_body import BodyLimit
from trek.serve.inference_app import InferenceApp
from trek.serve.serving_metrics import ServingMetrics
from trek.serve.settings import ServeSettings


def test_a_body_that_does_not_come_is_not_awaited_for_ever() -> None:
    async def run() -> list[Any]:
        sent = list[Any]()

        async def send(message: Any) -> None:
            sent.append(message)

        app = InferenceApp(cast("Any", None), cast("Any", None), settings=ServeSettings(), metrics=ServingMetrics())
        app._limit = BodyLimit(10, timeout_s=0.01)
        scope = {"type": "http", "method": "POST", "path": "/predict", "headers": []}
        await app(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]
        return sent

    head, body = asyncio.run(run())
    assert (head["status"], dict(head["headers"])[b"connection"]) == (408, b"close")
    assert b"did not arrive within" in body["body"]
