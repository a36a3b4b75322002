"""Steps that are gangs of processes: commands, scripts, and functions that several ranks perform together.

One thread watches each; it also stores a command's outputs, which may take as long as reading them.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

from trek.engines import Engine, Exit, Gang, GangSpec, OutputLine
from trek.engines.failure import describe_failure, find_exception
from trek.errors import InputError, TrekError
from trek.flow.artefacts import Stored, store_value
from trek.flow.graph import CommandWork, FunctionWork
from trek.flow.member import ANSWER, REQUEST
from trek.flow.pool import pack, to_ended
from trek.flow.tasks import Ended, Mailbox, Task

_GRACE_S = 5.0


class Gangs:
    """Runs tasks on the engine, each as a gang of its own."""

    def __init__(self, engine: Engine, *, mailbox: Mailbox) -> None:
        self._engine = engine
        self._mailbox = mailbox
        self._running: dict[Task, Gang] = {}
        self._threads: list[threading.Thread] = []

    def submit(self, task: Task) -> None:
        """Start the task's processes."""
        task.attempt.mkdir(parents=True, exist_ok=True)
        log = task.log.open("a", encoding="utf-8")
        has_prefix = task.step.settings.workers > 1

        def write(line: OutputLine) -> None:
            log.write(f"[rank {line.rank}] {line.text}\n" if has_prefix else f"{line.text}\n")
            log.flush()

        try:
            gang = self._engine.start(_to_spec(task), on_line=write)
        except TrekError as error:
            log.close()
            self._mailbox.put(Ended(task, error=str(error)))
            return
        self._running[task] = gang
        thread = threading.Thread(target=self._watch, args=(task, gang, log), name=f"trek-flow-{task.step.name}")
        thread.start()
        self._threads.append(thread)

    def cancel(self, task: Task) -> None:
        """End the task's processes; nothing more is heard of it."""
        gang = self._running.pop(task, None)
        if gang is not None:
            thread = threading.Thread(target=gang.stop, kwargs={"grace_s": _GRACE_S}, name="trek-flow-cancel")
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """End everything, and wait for it."""
        for task in list(self._running):
            self.cancel(task)
        for thread in self._threads:
            thread.join()

    def _watch(self, task: Task, gang: Gang, log: Any) -> None:
        failure = gang.wait_first_failure()
        gang.stop(grace_s=_GRACE_S)
        log.close()
        ended = _to_ended(task, failure)
        if self._running.pop(task, None) is not None:
            self._mailbox.put(ended)


def _to_spec(task: Task) -> GangSpec:
    settings = task.step.settings
    env = {**settings.env, "TREK_OUTPUT_DIR": str(output_folder(task.attempt))}
    command = _write_request(task) if isinstance(task.step.work, FunctionWork) else _command(task)
    if isinstance(task.step.work, CommandWork):
        env |= {name: str(value) for name, value in task.values[1].items()}
    return GangSpec(command, settings.workers, env=env, cwd=settings.cwd, hostfile=settings.hostfile)


def output_folder(attempt: Path) -> Path:
    """Where a command must leave its outputs."""
    folder = attempt / "outputs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _command(task: Task) -> list[str]:
    words = [os.fspath(word) if isinstance(word, Path) else str(word) for word in task.values[0]]
    # "python" means the Python that runs the flow, wherever PATH would lead.
    return [sys.executable if words[0] in ("python", "python3") else words[0], *words[1:]]


def _write_request(task: Task) -> list[str]:
    work = task.step.work
    assert isinstance(work, FunctionWork)
    args, kwargs, _ = task.values
    request = {
        "sys_path": sys.path,
        "function": pack(work.function, what=f"the function of step {task.step.name!r}"),
        "arguments": pack((args, kwargs), what=f"the arguments of step {task.step.name!r}"),
        "num_outputs": task.step.num_outputs,
    }
    (task.attempt / REQUEST).write_bytes(pickle.dumps(request))
    return [sys.executable, "-m", "trek.flow.member", str(task.attempt)]


def _to_ended(task: Task, failure: Exit | None) -> Ended:
    answer = task.attempt / ANSWER
    if isinstance(task.step.work, FunctionWork) and answer.exists() and failure in (None, _by_keeper(failure)):
        return to_ended(task, json.loads(answer.read_text()))
    if failure is not None:
        last = describe_failure(failure, num_workers=task.step.settings.workers).splitlines()[-1]
        return Ended(
            task,
            error=last.removeprefix("trek: error: ").rstrip("."),
            traceback="\n".join(find_exception(failure.last_lines)),
        )
    try:
        return Ended(task, outputs=_collect(task))
    except TrekError as error:
        return Ended(task, error=str(error))


def _by_keeper(failure: Exit | None) -> Exit | None:
    """The failure, if it is rank 0's, whose answer tells more than its exit."""
    return failure if failure is not None and failure.rank == 0 else None


def _collect(task: Task) -> tuple[Stored, ...]:
    work = task.step.work
    if not isinstance(work, CommandWork):
        raise InputError("it ended without an answer, though its processes ended well. See its log.")
    if not work.output_names:
        return (store_value(None, task.attempt / "output_0"),)
    return tuple(_store_output(task, name, index) for index, name in enumerate(work.output_names))


def _store_output(task: Task, name: str, index: int) -> Stored:
    path = output_folder(task.attempt) / name
    if not path.exists():
        raise InputError(f"it left no {name!r} in $TREK_OUTPUT_DIR. Write it there, or take it out of outputs=.")
    return store_value(path, task.attempt / f"output_{index}")
