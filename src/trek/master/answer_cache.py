"""AnswerCache: many clients that ask for the same while nothing was written get one answer, made once.

Only answers that are the same for every user and come from the store alone. Dashboards and `trek` commands poll them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trek.control.store import Subject
from trek.system.clock import Clock

MAX_AGE_S = 2.0
"""Changes that were made directly in the database appear after this long."""
MAX_ANSWERS = 256
MAX_BYTES = 2**18
"""Larger answers are not kept."""
_SHARED = re.compile(
    r"/api/v1/(jobs|models|checkpoints|experiments(/\d+(/trials|/best-checkpoint|/logs)?)?|trials/\d+(/metrics|/logs)?)"
)

_NARROW = re.compile(
    r"/api/v1/(experiments/(?P<experiment>\d{1,18})(/trials|/best-checkpoint|/logs)?"
    r"|trials/(?P<trial>\d{1,18})/(?P<part>metrics|logs))"
)


@dataclass(frozen=True)
class _Answer:
    version: int
    made_s: float
    start: Message
    body: bytes


class AnswerCache:
    """Middleware behind the door. `version` of a subject changes with every write that may change it."""

    def __init__(self, app: ASGIApp, *, version: Callable[[Subject | None], int], clock: Clock) -> None:
        self._app = app
        self._version = version
        self._clock = clock
        self._answers: dict[tuple[str, bytes], _Answer] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer from the cache, or pass the request on and keep the answer."""
        if not _is_shared(scope):
            return await self._app(scope, receive, send)
        key = (scope["path"], scope["query_string"])
        known, version = self._answers.get(key), self._version(_subject(scope))
        if known is not None and known.version == version and self._clock.monotonic_s() - known.made_s < MAX_AGE_S:
            await send(known.start)
            return await send({"type": "http.response.body", "body": known.body})
        recorder = _Recorder(send)
        await self._app(scope, receive, recorder)
        if recorder.start is not None and recorder.start["status"] == 200 and recorder.num_bytes <= MAX_BYTES:
            self._keep(key, _Answer(version, self._clock.monotonic_s(), recorder.start, b"".join(recorder.parts)))
        return None

    def _keep(self, key: tuple[str, bytes], answer: _Answer) -> None:
        if len(self._answers) >= MAX_ANSWERS:
            self._answers.clear()
        self._answers[key] = answer


def _is_shared(scope: Scope) -> bool:
    """Whether every user, of any role, gets the same answer."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return False
    return bool(_SHARED.fullmatch(_path(scope))) and scope["state"]["identity"].role is not None


def _subject(scope: Scope) -> Subject | None:
    """What the answer depends on, if that is less than everything: most reports of trials leave it as it is."""
    found = _NARROW.fullmatch(_path(scope))
    if found is None:
        return None
    return ("experiment", int(found["experiment"])) if found["experiment"] else (found["part"], int(found["trial"]))


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class _Recorder:
    """A `send` that also keeps what it sends, up to a limit."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.start: Message | None = None
        self.parts: list[bytes] = []
        self.num_bytes = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
        elif message["type"] == "http.response.body":
            part = message.get("body", b"")
            self.num_bytes += len(part)
            if self.num_bytes <= MAX_BYTES:
                self.parts.append(part)
        await self._send(message)
