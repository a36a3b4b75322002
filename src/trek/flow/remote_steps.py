"""Steps on an engine whose members do not see this machine's files, such as `ray`: artefacts travel with the gang.

Every step is a gang of its own. Its inputs are files of the gang, its outputs are read from the member that made them.
A machine that is lost is not the step's failure: the step is started again elsewhere.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from trek.engines import Engine, Exit, Gang, GangSpec
from trek.errors import OutsideError
from trek.flow.carrying import Inputs, bring_home, unpack
from trek.flow.gangs import GRACE_S, Gangs, command_words, output_folder, start_gang, to_problem
from trek.flow.graph import CommandWork, FunctionWork
from trek.flow.packing import pack_arguments, pack_function
from trek.flow.pool import to_ended
from trek.flow.randomness import same_hashes
from trek.flow.remote_member import INPUTS, OUTPUTS, REQUEST
from trek.flow.tasks import Ended, Mailbox, Task

_MAX_LOSSES = 5
_CHUNK_BYTES = 16 << 20


class RemoteSteps(Gangs):
    """Runs tasks on the engine, each as a gang of its own, with its artefacts. `home` is the folder of the store."""

    def __init__(self, engine: Engine, *, mailbox: Mailbox, home: Path) -> None:
        super().__init__(engine, mailbox=mailbox)
        self._home = home

    def _spec(self, task: Task) -> GangSpec:
        return to_remote_spec(task, home=self._home)

    def _end(self, task: Task, gang: Gang) -> Ended:
        for left in reversed(range(_MAX_LOSSES + 1)):
            failure = gang.wait_first_failure()
            gang.stop(grace_s=0.0 if failure is not None and failure.is_unreached else GRACE_S)
            lost = _find_loss(failure, gang)
            if not lost or task not in self._running or not left:
                return _to_ended(task, failure, gang)
            with task.log.open("a", encoding="utf-8") as log:
                log.write(f"[trek] {lost}; the step is started again elsewhere.\n")
            gang = self._running[task] = start_gang(self._engine, task, self._spec(task))
        raise AssertionError("the last round returns")


def to_remote_spec(task: Task, *, home: Path) -> GangSpec:
    """What the engine shall run for a task whose files are not there."""
    settings, inputs = task.step.settings, Inputs(home)
    request = {"sys_path": sys.path, "name": task.step.name, **_work(task, inputs)}
    return GangSpec(
        [sys.executable, "-m", "trek.flow.remote_member"],
        settings.workers,
        env={**same_hashes(os.environ), **task.env, "TREK_FLOW_TASK": f"{task.run}/{task.key[:16]}"},
        cwd=settings.cwd,
        cpus_per_worker=settings.cpus,
        gpus_per_worker=settings.gpus,
        files={REQUEST: pickle.dumps(request), INPUTS: inputs.packed()},
    )


def _work(task: Task, inputs: Inputs) -> dict[str, Any]:
    work = task.step.work
    if isinstance(work, FunctionWork):
        values = {**task.values, **inputs.carry({name: task.values[name] for name in ("args", "kwargs")})}
        return {
            "function": pack_function(work.function, task.step.name),
            "arguments": pack_arguments(replace(task, values=values)),
            "num_outputs": task.step.num_outputs,
            "digest": task.digest,
        }
    assert isinstance(work, CommandWork)
    return {
        "argv": [inputs.carry_text(word) for word in command_words(task)],
        "outputs": str(output_folder(task.attempt)),
        "output_names": tuple(work.output_names),
    }


def _find_loss(failure: Exit | None, gang: Gang) -> str:
    """What was lost with a machine: the step, or what it had made there, before it came home. Empty if nothing was."""
    if failure is not None:
        return f"{failure.host} was lost" if failure.is_unreached else ""
    has_ended = gang.outcomes().get(0) is not None
    is_home = gang.read_file(OUTPUTS, rank=0, size=1) is not None
    return "its outputs could not be read from the machine that it ran on" if has_ended and not is_home else ""


def _to_ended(task: Task, failure: Exit | None, gang: Gang) -> Ended:
    answer = gang.outcomes().get(0)
    if answer is None or (failure is not None and failure.rank != 0):
        return to_problem(task, failure)
    try:
        unpack(_read_whole(gang, OUTPUTS), task.attempt)
    except OutsideError as error:
        return Ended(task, error=str(error).rstrip("."), is_outside=True)
    return to_ended(task, bring_home(answer, task.attempt))


def _read_whole(gang: Gang, name: str) -> bytes:
    """A file of the first member, in parts: it may be large."""
    parts: list[bytes] = []
    while part := gang.read_file(name, rank=0, start=sum(map(len, parts)), size=_CHUNK_BYTES):
        parts.append(part)
        if len(part) < _CHUNK_BYTES:
            break
    if not parts:
        raise OutsideError("the outputs of the step could not be read from the machine that it ran on.")
    return b"".join(parts)
