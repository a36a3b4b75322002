"""The loop: decides what runs next, watches it, and records the results.

One thread decides and writes records; work happens in processes. Nothing is remembered here that a killed run would
miss: a step counts as done when its outputs are in place and the records say so, in one transaction.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import shutil
import sqlite3
import time
import uuid
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from trek.engines import Engine
from trek.errors import InputError
from trek.flow.artefacts import NOTHING, Stored, join_parts, spell
from trek.flow.flow_reader import StepRow
from trek.flow.flow_store import FlowStore
from trek.flow.gangs import Gangs, output_folder
from trek.flow.graph import (
    FunctionWork,
    MapWork,
    Output,
    OutputFolder,
    PathOf,
    Reference,
    ServiceWork,
    Step,
    conditional_steps,
    has_lost_branches,
    order,
    substitute,
)
from trek.flow.kept_results import KeptResults
from trek.flow.keys import Components, Keymaker, make_key
from trek.flow.libraries import libraries_of
from trek.flow.maps import Maps
from trek.flow.memory import SharedMemory
from trek.flow.parameters import Param
from trek.flow.pool import Pool
from trek.flow.ready_queue import ReadyQueue
from trek.flow.remote_steps import RemoteSteps
from trek.flow.reporting import Reporter
from trek.flow.run_plan import RunPlan
from trek.flow.service_steps import ServiceSteps
from trek.flow.tasks import Ended, Failure, Mailbox, Task

_MAX_BACKOFF_S = 60.0


class Runner:
    """Runs one plan once."""

    def __init__(
        self,
        plan: RunPlan,
        *,
        run: str,
        store: FlowStore,
        params: Mapping[str, Any],
        engine: Engine,
        reporter: Reporter,
        previous: Mapping[str, StepRow],
        threads: Mapping[Step, Mapping[str, str]],
    ) -> None:
        self._plan, self._run, self._store, self._reporter = plan, run, store, reporter
        self._params, self._threads = params, threads
        self.stored: dict[Output, Stored] = {}
        self.failed: dict[Step, Failure] = {}
        self._skipped: set[Step] = set()
        self._conditional = conditional_steps(plan.steps)
        self._keys = Keymaker(params, self.stored, home=store.home)
        self._sorter = order(plan.steps)
        self._maps = Maps()
        self._memory = SharedMemory(plan.steps, run=run, params=params)
        in_memory = [step for step in plan.steps if self._memory.holds(step)]
        self._kept = KeptResults(plan, store=store, previous=previous, in_memory=in_memory)
        self._mailbox = Mailbox()
        functions = [step.work.function for step in plan.steps if isinstance(step.work, FunctionWork | MapWork)]
        libraries = libraries_of(functions)
        self._pool = Pool(engine, size=plan.parallel, mailbox=self._mailbox, libraries=libraries)
        self._gangs = Gangs(engine, mailbox=self._mailbox)
        self._remote = RemoteSteps(engine, mailbox=self._mailbox, home=store.folder)
        self._is_here = engine.shares_disk
        self._services = ServiceSteps(engine, mailbox=self._mailbox, folder=store.services)
        self._queue = ReadyQueue()
        self._delayed: list[tuple[float, int, Step, int]] = []
        self._running: dict[Task, int] = {}
        self._found: dict[Step, tuple[str, Components, str]] = {}
        self._started: dict[Step, float] = {}
        self._numbers = itertools.count()
        self._dice = random.Random()  # noqa: S311 - jitter; not the user's generator

    def run(self) -> None:
        """Run to the end. Failures are in `failed`; an interrupt ends everything and is raised on."""
        try:
            self._take_ready()
            while self._running or self._queue or self._delayed:
                self._dispatch()
                if self._running or self._delayed:
                    self._await_news()
                self._take_ready()
            self._mark_blocked()
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # what is raised is the reason, not that it cannot be recorded
                for task in list(self._running):
                    self._store.update_step(self._run, task.step.name, state="interrupted", ended=time.time())
            raise
        finally:
            self._pool.close()
            self._gangs.close()
            self._remote.close()
            self._services.close()
            self._mailbox.close()
            self._memory.close()

    def _take_ready(self) -> None:
        while ready := self._sorter.get_ready():
            for step in ready:
                self._consider(step)

    def _consider(self, step: Step) -> None:
        """Skip the step, divide it, find its result, or queue it."""
        if any(up in self.failed for up in step.upstream()):
            return  # a service that failed after it was there
        if not self._is_wanted(step):
            self._finish_skipped(step)
            return
        if isinstance(step.work, MapWork):
            self._divide(step)
            return
        components = self._keys.components(step)
        key = make_key(components)
        outputs, reason = self._kept.find(step, whole=self._maps.whole(step), key=key, components=components)
        self._found[step] = key, components, reason
        if outputs is not None:
            self._finish_kept(step, outputs, reason)
        else:
            self._queue.put(step, 1, slots=self._slots(step))

    def _is_wanted(self, step: Step) -> bool:
        if has_lost_branches(step, skipped=self._skipped, conditional=self._conditional):
            return False
        return step.when is None or bool(substitute(step.when, self._value_of))

    def _divide(self, step: Step) -> None:
        """Put the parts of a map in its place; it is done when they are."""
        assert isinstance(step.work, MapWork)
        try:
            parts = self._maps.divide(step, substitute(step.work.items, self._value_of))
        except InputError as error:
            self._fail(step, Failure(str(error)))
            return
        self._started[step] = time.time()
        self._reporter.added(len(parts))
        self._store.add_steps(self._run, [part.name for part in parts])
        self._store.update_step(self._run, step.name, state="running", started=self._started[step], ended=None)
        for part in parts:
            self._consider(part)
        self._finish_map(step)

    def _finish_map(self, step: Step) -> None:
        """Hand the parts' results on as one, if they are all there."""
        outputs = [Output(part) for part in self._maps.parts(step)]
        if Output(step) in self.stored or not all(output in self.stored for output in outputs):
            return
        reason = f"{len(outputs)} items"
        self._store.update_step(self._run, step.name, state="done", reason=reason, ended=time.time(), error=None)
        self._reporter.ended(step, "done", reason=reason, seconds=time.time() - self._started[step])
        self._hand_on(step, [join_parts([self.stored[output] for output in outputs])])

    def _finish_skipped(self, step: Step) -> None:
        self._skipped.add(step)
        # What a join takes in its place: see `has_lost_branches`.
        self.stored |= {Output(step, index): NOTHING for index in range(step.num_outputs)}
        self._store.update_step(self._run, step.name, state="skipped", reason="its condition is not met")
        self._reporter.ended(step, "skipped", reason="its condition is not met")
        self._memory.release_inputs(step)
        self._sorter.done(step)

    def _finish_kept(self, step: Step, outputs: Sequence[Stored], reason: str) -> None:
        key = self._found[step][0]
        self._store.update_step(
            self._run, step.name, state="cached", key=key, reason=reason, outputs=self._store.dump(outputs), error=None
        )
        self._reporter.ended(step, "cached", reason=reason)
        self._hand_on(step, outputs)

    def _hand_on(self, step: Step, outputs: Sequence[Stored]) -> None:
        for index, stored in enumerate(outputs):
            self.stored[Output(step, index)] = stored
        self._memory.release_inputs(step)
        if (whole := self._maps.whole(step)) is step:
            self._sorter.done(step)
        else:
            self._finish_map(whole)

    def _dispatch(self) -> None:
        free = self._plan.parallel - sum(self._running.values())
        while free > 0 and (next_one := self._queue.take(free)) is not None:
            step, number, slots = next_one
            free -= slots if self._start(step, number, slots) else 0

    def _slots(self, step: Step) -> int:
        return min(step.settings.num_processes, self._plan.parallel)

    def _start(self, step: Step, number: int, slots: int) -> bool:
        """Start an attempt; False if it cannot be, and the step has failed."""
        try:
            task = self._make_task(step, number)
        except InputError as error:
            self._fail(step, Failure(str(error)))
            return False
        key, _, reason = self._found[step]
        now = time.time()
        self._started.setdefault(step, now)
        self._store.update_step(
            self._run, step.name, state="running", key=key, reason=reason, attempt=number, started=now, ended=None
        )
        self._running[task] = slots
        self._reporter.started(step, number=number, reason=reason)
        self._executor(step).submit(task)
        return True

    def _make_task(self, step: Step, number: int) -> Task:
        is_in_memory = self._memory.holds(step)
        root = self._memory.folder if is_in_memory else self._store.run_folder(self._run)
        attempt = root / "attempts" / str(next(self._numbers))
        shutil.rmtree(attempt, ignore_errors=True)
        key, settings = self._found[step][0], step.settings
        # What lives in memory is named by the key it would be kept under, or by nothing that comes again.
        digest = (key if settings.cache else uuid.uuid4().hex) if is_in_memory else None
        return Task(
            step,
            number,
            values=substitute(step.values(), lambda reference: self._stand_in(reference, attempt), spell=spell),
            run=self._run,
            key=key,
            attempt=attempt,
            log=self._store.log_path(self._run, step.name),
            digest=digest,
            threads=self._threads[self._maps.whole(step)],
        )

    def _executor(self, step: Step) -> Pool | Gangs | ServiceSteps:
        if isinstance(step.work, ServiceWork):
            return self._services
        if not self._is_here:
            return self._remote
        settings = step.settings
        # A library may read variables when it is imported, which the pool's workers did before.
        is_apart = settings.is_apart or settings.workers > 1 or bool(settings.env) or settings.gpus > 0
        return self._pool if isinstance(step.work, FunctionWork) and not is_apart else self._gangs

    def _stand_in(self, reference: Reference, attempt: Path) -> Any:
        """What a process is given in place of a reference; artefacts are loaded there, not here."""
        if isinstance(reference, Output):
            return self.stored[reference]
        if isinstance(reference, PathOf):
            is_there = reference.output.step not in self._skipped
            return self._store.path_of(self.stored[reference.output]) if is_there else ""
        if isinstance(reference, OutputFolder):
            return output_folder(attempt)
        return self._params[reference.name]

    def _value_of(self, reference: Reference) -> Any:
        if isinstance(reference, Param):
            return self._params[reference.name]
        assert isinstance(reference, Output)
        return self.stored[reference].load()

    def _await_news(self) -> None:
        ready = wait([self._mailbox.fileno(), *self._pool.waitables()], self._patience_s())
        for ended in self._pool.attend(list(ready)):
            self._take_in(ended)
        for ended in self._mailbox.take():
            self._take_in(ended)
        self._end_overdue()
        now = time.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            _, _, step, number = heapq.heappop(self._delayed)
            self._queue.put(step, number, slots=self._slots(step))
        self._reporter.tick()

    def _patience_s(self) -> float | None:
        deadlines = [task.deadline for task in self._running if task.deadline is not None]
        deadlines += [self._delayed[0][0]] if self._delayed else []
        limit = self._reporter.period_s
        if not deadlines:
            return limit
        left = max(min(deadlines) - time.monotonic(), 0.0)
        return left if limit is None else min(left, limit)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for task in [task for task in self._running if task.deadline is not None and task.deadline <= now]:
            self._executor(task.step).cancel(task)
            self._take_in(Ended(task, error=f"it timed out after {task.step.settings.timeout_s:g} s"))

    def _take_in(self, ended: Ended) -> None:
        if self._running.pop(ended.task, None) is None:
            self._after_loss(ended)
            return
        if ended.error is None:
            self._finish_done(ended)
        else:
            self._after_failure(ended.task, Failure(ended.error, ended.traceback, ended.is_outside))
        if ended.task.attempt.exists():
            shutil.rmtree(ended.task.attempt, ignore_errors=True)

    def _finish_done(self, ended: Ended) -> None:
        step = ended.task.step
        in_memory = self._memory.holds(step)
        objects = self._memory.objects(step) if in_memory else None
        outputs = [self._store.adopt(stored, objects=objects) for stored in ended.outputs]
        # What has no files in memory, such as numbers or a checkpoint that lies elsewhere, lasts all the same.
        does_last = not in_memory or all(stored.folder is None for stored in outputs)
        key, components, reason = self._found[step]
        with self._store.transaction():
            if step.settings.cache and does_last:
                self._store.save_result(self._run, key, outputs)
            self._store.save_components(step.name, components)
            self._store.update_step(
                self._run,
                step.name,
                state="done",
                ended=time.time(),
                outputs=self._store.dump(outputs) if does_last else None,
            )
        self._reporter.ended(step, "done", reason=reason, seconds=time.time() - self._started[step])
        self._hand_on(step, outputs)

    def _after_failure(self, task: Task, failure: Failure) -> None:
        settings = task.step.settings
        if task.number <= settings.retries:
            pause_s = min(settings.backoff_s * 2 ** (task.number - 1), _MAX_BACKOFF_S) * self._dice.uniform(0.5, 1.5)
            heapq.heappush(self._delayed, (time.monotonic() + pause_s, next(self._numbers), task.step, task.number + 1))
            self._reporter.failed(task.step, failure.error, retry_in_s=pause_s)
        else:
            self._fail(task.step, failure)

    def _after_loss(self, ended: Ended) -> None:
        """A service ended early, which matters while a step needs it; or a time was over before."""
        service = ended.task.step
        settled = self._settled()
        if service in settled and any(service in step.upstream() and step not in settled for step in self._plan.steps):
            self._fail(service, Failure(ended.error or ""))

    def _fail(self, step: Step, failure: Failure) -> None:
        self.failed[step] = failure
        self._store.update_step(self._run, step.name, state="failed", ended=time.time(), error=failure.error)
        self._reporter.failed(step, failure.error, retry_in_s=None)

    def _mark_blocked(self) -> None:
        if not self.failed:
            return
        settled = self._settled()
        for step in self._plan.steps:
            if step not in settled:
                self._store.update_step(self._run, step.name, state="blocked", reason="a step before it failed")
                self._reporter.ended(step, "blocked", reason="a step before it failed")

    def outputs(self) -> dict[Output, Stored]:
        """What was made or found, without that of steps that were skipped."""
        return {output: stored for output, stored in self.stored.items() if output.step not in self._skipped}

    def _settled(self) -> set[Step]:
        return {output.step for output in self.stored} | self._skipped | self.failed.keys()
