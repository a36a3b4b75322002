"""The child of a BackgroundLogger: `python -m trek.train.loggers.recording_process module:Class SETTINGS`.

Reads one call per line from standard input and makes it on the Recorder; answers on standard output how many calls are
recorded, and what went wrong. Ends with its input, and does not outlive it for long.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from trek.train.loggers.recorder import Recorder
from trek.train.loggers.sent import call_loggers

GATHER_S = 0.5
"""How long calls are collected before they are sent."""
LAST_S = 60.0
"""How long the child goes on trying after its input has ended; whoever waits for it ends it earlier."""
MAX_PAUSE_S = 5.0
_CHUNK_BYTES = 1 << 20
Answer = Callable[[Mapping[str, Any]], None]


def main(arguments: list[str]) -> None:
    """Record until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to a whole group: the trainer decides when recording ends
        signal.signal(number, signal.SIG_IGN)
    answer = _own_output()
    try:
        module, _, name = arguments[0].partition(":")
        recorder: Recorder = getattr(importlib.import_module(module), name)(**json.loads(arguments[1]))
        _record(recorder, answer)
    except Exception as error:  # noqa: BLE001 - whatever a library raises
        answer({"problem": _sentence(error)})


def _own_output() -> Answer:
    """What is printed by libraries goes nowhere; answers go where standard output went."""
    output = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)

    def answer(message: Mapping[str, Any]) -> None:
        try:
            output.write(json.dumps(message) + "\n")
            output.flush()
        except OSError:
            pass  # nobody is listening any more

    return answer


def _record(recorder: Recorder, answer: Answer) -> None:
    calls = _Calls(sys.stdin.fileno())
    num_calls = 0
    while not calls.has_ended:
        for message in calls.gather():
            call_loggers([recorder], message, hparams=message.get("hparams", {}))
            num_calls += 1
        if _flush(recorder, answer, until_s=time.monotonic() + LAST_S if calls.has_ended else None):
            answer({"recorded": num_calls, "problem": ""})
    recorder.close()


def _flush(recorder: Recorder, answer: Answer, *, until_s: float | None) -> bool:
    """Try until it works or time is up."""
    pause_s = 0.1
    while True:
        try:
            recorder.flush()
        except Exception as error:  # noqa: BLE001 - whatever a library raises
            answer({"problem": _sentence(error)})
            if until_s is not None and time.monotonic() > until_s:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        else:
            return True


class _Calls:
    """Calls as they come, in portions of about GATHER_S."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self.has_ended = False

    def gather(self) -> list[dict[str, Any]]:
        """At least one call, unless the input has ended."""
        read, deadline = [self._rest], time.monotonic() + GATHER_S
        while not self.has_ended and (time.monotonic() < deadline or b"\n" not in b"".join(read)):
            left = max(deadline - time.monotonic(), GATHER_S)
            if not select.select([self._descriptor], [], [], left)[0]:
                continue
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
            self.has_ended = not chunk
            read.append(chunk)
            if sum(map(len, read)) > _CHUNK_BYTES:
                break
        whole, newline, self._rest = b"".join(read).rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines()] if newline else []


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300].rstrip(".")


if __name__ == "__main__":
    main(sys.argv[1:])
