"""Steps that are gangs of processes: commands, scripts, and functions that several ranks perform together.

One thread watches each; it also stores a command's outputs, which may take as long as reading them.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

from trek.engines import Engine, Exit, Gang, GangSpec, OutputLine
from trek.engines.failure import find_unreached, to_error
from trek.errors import InputError, OutsideError, TrekError
from trek.flow.artefacts import Stored, spell, store_value
from trek.flow.graph import CommandWork, FunctionWork
from trek.flow.packing import pack_arguments, pack_function
from trek.flow.performing import full_disk
from trek.flow.pool import to_ended
from trek.flow.randomness import same_hashes
from trek.flow.script_member import REQUEST
from trek.flow.tasks import Ended, Mailbox, Task
from trek.system.disk import is_disk_full

GRACE_S = 5.0


class Gangs:
    """Runs tasks on the engine, each as a gang of its own."""

    def __init__(self, engine: Engine, *, mailbox: Mailbox) -> None:
        self._engine = engine
        self._mailbox = mailbox
        self._running: dict[Task, Gang] = {}
        self._threads: list[threading.Thread] = []

    def submit(self, task: Task) -> None:
        """Start the task's processes."""
        task.start_clock()
        try:
            gang = start_gang(self._engine, task, self._spec(task))
        except (TrekError, OSError) as error:
            self._mailbox.put(_to_problem(task, error))
            return
        self._running[task] = gang
        thread = threading.Thread(target=self._watch, args=(task, gang), name=f"trek-flow-{task.step.name}")
        thread.start()
        self._threads.append(thread)

    def cancel(self, task: Task) -> None:
        """End the task's processes; nothing more is heard of it."""
        gang = self._running.pop(task, None)
        if gang is not None:
            thread = threading.Thread(target=gang.stop, kwargs={"grace_s": GRACE_S}, name="trek-flow-cancel")
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """End everything, and wait for it."""
        for task in list(self._running):
            self.cancel(task)
        for thread in self._threads:
            thread.join()

    def _watch(self, task: Task, gang: Gang) -> None:
        try:
            ended = self._end(task, gang)
        except (TrekError, OSError) as error:  # its log cannot be written, or it cannot be started again
            gang.stop(grace_s=GRACE_S)
            ended = _to_problem(task, error)
        if self._running.pop(task, None) is not None:
            self._mailbox.put(ended)

    def _spec(self, task: Task) -> GangSpec:
        return to_spec(task)

    def _end(self, task: Task, gang: Gang) -> Ended:
        """Wait until the task's processes have ended."""
        failure = gang.wait_first_failure()
        gang.stop(grace_s=GRACE_S)
        return _to_ended(task, failure, answer=gang.outcomes().get(0))


def start_gang(engine: Engine, task: Task, spec: GangSpec) -> Gang:
    """Start what `spec` says, and write its output into the task's log."""
    log = task.log.open("a", encoding="utf-8", buffering=1)
    alive = set(range(spec.num_workers))

    def write(line: OutputLine) -> None:
        log.write(f"[rank {line.rank}] {line.text}\n" if spec.num_workers > 1 else f"{line.text}\n")

    def close_after_last(exit_: Exit) -> None:
        alive.discard(exit_.rank)
        if not alive:
            log.close()

    try:
        return engine.start(spec, on_line=write, on_exit=close_after_last)
    except BaseException:
        log.close()
        raise


def to_spec(task: Task) -> GangSpec:
    """What the engine shall run for a task."""
    settings = task.step.settings
    task.attempt.mkdir(parents=True, exist_ok=True)
    files: dict[str, bytes] = {}
    hashes: dict[str, str] = {}
    if isinstance(task.step.work, FunctionWork):
        command = [sys.executable, "-m", "trek.flow.script_member", str(task.attempt)]
        files[REQUEST] = _request(task, task.step.work)
        hashes = same_hashes(os.environ)
    else:
        words = command_words(task)
        # "python" means the Python that runs the flow, wherever PATH would lead.
        command = [sys.executable if words[0] in ("python", "python3") else words[0], *words[1:]]
    variables = {
        **hashes,
        **task.env,
        "TREK_OUTPUT_DIR": str(output_folder(task.attempt)),
        "TREK_FLOW_TASK": f"{task.run}/{task.key[:16]}",
    }
    return GangSpec(
        command,
        settings.workers,
        env=variables,
        cwd=settings.cwd,
        hostfile=settings.hostfile,
        files=files,
        cpus_per_worker=settings.cpus,
        gpus_per_worker=settings.gpus,
    )


def output_folder(attempt: Path) -> Path:
    """Where a command must leave its outputs."""
    folder = attempt / "outputs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def command_words(task: Task) -> list[str]:
    """The command of a task, as text; a result of another step by the number or text that it is."""
    return [spell(word) if isinstance(word, Stored) else str(word) for word in task.values["argv"]]


def _request(task: Task, work: FunctionWork) -> bytes:
    request = {
        "sys_path": sys.path,
        "function": pack_function(work.function, task.step.name),
        "arguments": pack_arguments(task),
        "num_outputs": task.step.num_outputs,
        "digest": task.digest,
        "name": task.step.name,
    }
    return pickle.dumps(request)


def _to_ended(task: Task, failure: Exit | None, *, answer: dict[str, Any] | None) -> Ended:
    is_function = isinstance(task.step.work, FunctionWork)
    if is_function and answer is not None and failure in (None, _by_keeper(failure)):
        return to_ended(task, answer)
    if failure is not None:
        return to_problem(task, failure)
    try:
        return Ended(task, outputs=_collect(task))
    except (TrekError, OSError) as problem:
        return _to_problem(task, problem)


def to_problem(task: Task, failure: Exit | None) -> Ended:
    """The end of a task whose process failed, or gave no answer."""
    if failure is None:
        return Ended(task, error="its processes ended without an error and without a result. See its log")
    if (unreached := find_unreached(failure)) is not None:
        return _to_problem(task, unreached)
    error = to_error(failure, num_workers=task.step.settings.workers)
    return Ended(task, error=str(error).rstrip("."), traceback=error.traceback_text)


def _to_problem(task: Task, error: TrekError | OSError) -> Ended:
    """The end of a task that Trek could not start, watch or store."""
    if is_disk_full(error):
        return to_ended(task, full_disk(error, task.attempt))
    return Ended(task, error=str(error).rstrip("."), is_outside=isinstance(error, OutsideError))


def _by_keeper(failure: Exit | None) -> Exit | None:
    """The failure, if it is rank 0's, whose answer tells more than its exit."""
    return failure if failure is not None and failure.rank == 0 else None


def _collect(task: Task) -> tuple[Stored, ...]:
    work = task.step.work
    if not isinstance(work, CommandWork):
        raise InputError("its processes ended without an error and without a result. See its log.")
    if not work.output_names:
        return (store_value(None, task.attempt / "output_0"),)
    return tuple(store_output(task.attempt, name, index) for index, name in enumerate(work.output_names))


def store_output(attempt: Path, name: str, index: int) -> Stored:
    """The output called `name` of a command."""
    path = output_folder(attempt) / name
    if not path.exists():
        raise InputError(f"it did not write {name!r} to $TREK_OUTPUT_DIR. Write it there, or remove it from outputs=.")
    return store_value(path, attempt / f"output_{index}")
