"""One run of a flow, from the first check to what it gave. `trek.flow.runner` does the work in between."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trek.engines import open_engine
from trek.engines.agent import SHARE, THREADS
from trek.errors import InputError, OutsideError, StorageError, TrainingError, TrekError
from trek.flow.artefacts import Stored
from trek.flow.dry_run import Foreseen, foresee
from trek.flow.flow import Flow
from trek.flow.flow_reader import RunRow, StepRow
from trek.flow.flow_store import FlowStore
from trek.flow.graph import Output, Step, graph_of
from trek.flow.packing import check_sendable
from trek.flow.recording import recording
from trek.flow.reporting import choose_reporter
from trek.flow.run_plan import RunPlan, make_plan, share_threads
from trek.flow.runner import Runner
from trek.flow.tasks import Failure
from trek.system.disk import is_disk_full
from trek.system.home import trek_home

_LOG_LINES = 10


class Run:
    """The results of a run: `run[output]` is a value, `run.path(output)` where it is."""

    def __init__(self, run: str, *, outputs: Mapping[Output, Stored], steps: list[StepRow], store_folder: Path) -> None:
        self.id = run
        self.steps = steps
        self._outputs = outputs
        self._store_folder = store_folder

    def __repr__(self) -> str:
        return f"Run({self.id!r}, {len(self.steps)} steps)"

    def __getitem__(self, output: Output) -> Any:
        return self._find(output).load()

    def path(self, output: Output) -> Path:
        """The file or folder that holds the output."""
        store = FlowStore(self._store_folder.name, home=self._store_folder.parent.parent)
        try:
            return store.path_of(self._find(output))
        finally:
            store.close()

    def states(self) -> dict[str, str]:
        """State by name of step."""
        return {step.name: step.state for step in self.steps}

    def reasons(self) -> dict[str, str | None]:
        """Why each step ran or did not, by its name."""
        return {step.name: step.reason for step in self.steps}

    def _find(self, output: Output) -> Stored:
        if output not in self._outputs:
            raise InputError(f"{output!r} was not made in this run: its step was skipped, or is not part of it.")
        stored = self._outputs[output]
        if stored.root is not None and not stored.root.exists():
            raise InputError(f"{output!r} lived in shared memory and was freed with the run. Use handover='disk'.")
        return stored


def run_flow(
    flow: Flow,
    *,
    params: Mapping[str, Any],
    parallel: int | None,
    force: bool,
    from_step: str | None,
    only: str | None,
    resume: str | None,
    show: bool,
    engine: str,
) -> Run:
    """Run `flow`; raises `TrainingError` when a step failed, after everything that does not need it has run."""
    chosen = open_engine(engine)
    slots = chosen.slots() if parallel is None else parallel
    plan = make_plan(flow, parallel=slots, force=force, from_step=from_step, only=only)
    check_sendable(plan.steps)
    store = FlowStore(flow.name, home=trek_home().absolute())
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(store))
        stack.enter_context(_full_disk_told(store))
        previous: dict[str, StepRow] = {}
        if resume is not None:
            stack.enter_context(in_folder_of(store.find_run(resume)))
            params, previous = _look_back(store, resume, params)
        values = complete_params(flow, params)
        for step in plan.steps:
            step.settings.resolve_handover(values)
        names = [step.name for step in plan.steps]
        run = store.begin_run(names, params=values, source=flow.source, graph=graph_of(plan.steps), resume=resume)
        reporter = choose_reporter(len(plan.steps), show=show)
        runner = Runner(
            plan, run=run, store=store, params=values, engine=chosen, reporter=reporter, previous=previous,
            threads=_share_threads(plan, os.environ),
        )  # fmt: skip
        with (
            contextlib.closing(reporter),
            recording(flow.name, run, home=trek_home(), master=os.environ.get("TREK_MASTER")),
        ):
            _run_to_the_end(runner, run, store)
        if runner.failed:
            raise _to_error(runner.failed, run, store)
        return Run(run, outputs=runner.outputs(), steps=store.steps(run), store_folder=store.folder)


def foresee_run(
    flow: Flow, *, params: Mapping[str, Any], force: bool, from_step: str | None, only: str | None
) -> list[Foreseen]:
    """What a run of `flow` with these settings would do with each step."""
    plan = make_plan(flow, parallel=1, force=force, from_step=from_step, only=only)
    values = complete_params(flow, params)
    check_sendable(plan.steps)
    return foresee(plan, name=flow.name, home=trek_home(), params=values)


def complete_params(flow: Flow, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter's value: the given one, or its default."""
    unknown = sorted(given.keys() - flow.params.keys())
    if unknown:
        known = ", ".join(flow.params) or "none"
        raise InputError(f"flow {flow.name!r} has no parameter {unknown[0]!r}. It has: {known}.")
    return {name: param.check(given[name]) if name in given else param.default for name, param in flow.params.items()}


@contextlib.contextmanager
def in_folder_of(row: RunRow) -> Iterator[None]:
    """The working directory that the run was started in: files are named relative to it."""
    folder = Path(row.folder or ".")
    if not folder.is_dir():
        raise InputError(
            f"run {row.id!r} was started in {str(folder)!r}, which does not exist. "
            "Create that folder again, or start a new run."
        )
    with contextlib.chdir(folder):
        yield


def _look_back(store: FlowStore, run: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, StepRow]]:
    row = store.find_run(run)
    if row.is_alive:
        raise InputError(f"run {run!r} is still running in process {row.pid}. Wait for it, or stop it first.")
    return {**json.loads(row.params), **params}, {step.name: step for step in store.steps(run)}


def _share_threads(plan: RunPlan, environ: Mapping[str, str]) -> dict[Step, dict[str, str]]:
    """The variables that tell each step's processes their threads; the engine divides them among several processes."""
    if THREADS in environ and environ[THREADS] != environ.get(SHARE):
        return {step: {THREADS: environ[THREADS]} for step in plan.steps}
    num_cores = int(environ.get(SHARE) or len(os.sched_getaffinity(0)))  # a flow in a step of a flow has its share
    shares = share_threads(plan, num_cores=num_cores)
    return {
        step: {} if step.settings.hostfile else {THREADS: str(share), SHARE: str(share)}
        for step, share in shares.items()
    }


def _run_to_the_end(runner: Runner, run: str, store: FlowStore) -> None:
    try:
        runner.run()
    except BaseException as error:
        with contextlib.suppress(sqlite3.Error):  # what is raised is the reason, not that it cannot be recorded
            store.finish_run(run, "interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        raise
    store.finish_run(run, "failed" if runner.failed else "done")


@contextlib.contextmanager
def _full_disk_told(store: FlowStore) -> Iterator[None]:
    """Turn a full disk under the records into one error."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if not is_disk_full(error):
            raise
        place = getattr(error, "filename", None) or store.folder
        raise StorageError(
            f"no space left in {place}. Free some space, then run: trek flow resume {store.name}"
        ) from error


def _to_error(failed: Mapping[Step, Failure], run: str, store: FlowStore) -> TrekError:
    step, failure = next(((one, why) for one, why in failed.items() if why.is_outside), next(iter(failed.items())))
    log = store.log_path(run, step.name)
    others = f" {len(failed) - 1} more failed." if len(failed) > 1 else ""
    what = failure.error if failure.error.endswith((".", "?")) else f"{failure.error}."
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:] if log.exists() else []
    if failure.is_outside:
        return OutsideError(f"step {step.name!r} failed: {what}{others} Then run: trek flow resume {store.name}")
    return TrainingError(
        f"step {step.name!r} failed: {what}{others} "
        f"After fixing that, run: trek flow resume {store.name}. Its log: {log}",
        traceback_text=failure.traceback or "\n".join(lines),
    )
