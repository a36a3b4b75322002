"""The process of one serving worker, `python -m trek.serve.worker_process FD PID`: loads one model, answers frames.

It ends when the front process PID closes its side of the socket; when that is killed, the kernel ends it, whatever the
model does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import select
import signal
import socket
import sys
from typing import Any

from trek.engines.agent import end_with_parent
from trek.errors import TrekError
from trek.wire.frames import receive, send_message, split


def main(descriptor: int, front: int) -> None:
    """Load the model that the first frame names, then answer until the socket closes."""
    end_with_parent(front)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the front process says when to end
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    with socket.socket(fileno=descriptor) as connection:
        settings, _ = receive(connection)
        try:
            worker = _Worker(connection, json.loads(settings))
        except Exception as error:  # noqa: BLE001 - code and files of others are loaded there
            send_message(connection, {"op": "failed", **_reason(error)})
            return
        worker.answer_all()


class _Worker:
    def __init__(self, connection: socket.socket, settings: dict[str, Any]) -> None:
        from trek.serve.batch_runner import BatchRunner
        from trek.serve.handler_metadata import describe_handler
        from trek.serve.handlers import open_handler
        from trek.serve.model_source import ModelSource

        source = ModelSource.from_plain(settings["source"])
        handler = open_handler(source, device=settings["device"], number=settings["number"])
        self._connection = connection
        self._runner = BatchRunner(
            handler,
            model=settings["model"],
            version=settings["version"],
            max_rows=settings["max_rows"],
            max_bytes=settings["max_bytes"],
        )
        # What is loaded stays: the garbage collector need not look through all of it while requests wait.
        gc.collect()
        gc.freeze()
        self._send({"op": "ready", **describe_handler(handler)})

    def answer_all(self) -> None:
        """Until the front process closes the socket; EOFError then."""
        while True:
            packed, body = receive(self._connection)
            head = json.loads(packed)
            if head["op"] == "infer":
                self._infer(head, body)
            elif head["op"] == "stream":
                self._stream(head, body)
            elif head["op"] == "ping":
                self._send({"op": "pong"})

    def _infer(self, head: dict[str, Any], body: memoryview) -> None:
        from trek.serve.batch_runner import Job

        bodies = split(body, [item["size"] for item in head["items"]])
        jobs = [Job(item["codec"], item["headers"], one) for item, one in zip(head["items"], bodies, strict=True)]
        outcomes = self._runner.run(jobs)
        described = [
            [one.status, one.answer.content_type, one.answer.headers, len(one.answer.body)] for one in outcomes
        ]
        self._send({"op": "answers", "items": described}, *(one.answer.body for one in outcomes))

    def _stream(self, head: dict[str, Any], body: memoryview) -> None:
        """Send the pieces as they come; whatever the front process sends meanwhile asks to stop."""
        from trek.serve.batch_runner import Job, failed

        end: dict[str, Any] = {"op": "end"}
        try:
            for piece in self._runner.stream(Job(head["codec"], head["headers"], body)):
                if select.select([self._connection], [], [], 0)[0]:
                    break
                self._send({"op": "piece"}, piece)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            outcome = failed(error)
            end |= {"status": outcome.status, "error": outcome.answer.body.decode()}
        self._send(end)

    def _send(self, head: dict[str, Any], *pieces: bytes) -> None:
        send_message(self._connection, head, pieces)


def _reason(error: Exception) -> dict[str, Any]:
    if isinstance(error, TrekError):
        return {"error": str(error), "exit_code": error.exit_code}
    return {"error": f"loading it failed: {type(error).__name__}: {error}", "exit_code": 2}


if __name__ == "__main__":
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the front process has gone, or gone on
        main(int(sys.argv[1]), int(sys.argv[2]))
