"""An experiment as a step: created as by `trek.Experiment`, followed to its end; its best checkpoint is the result.

The control plane runs it; this process only watches. When the step is interrupted, it pauses the experiment, and the
next attempt at the same step of the same run activates it again: a label on the experiment identifies it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.errors import InputError, OutsideError, TrainingError, TrekError
from trek.flow.performing import scratch

if TYPE_CHECKING:
    from trek import Checkpoint
    from trek.client.client import Client
    from trek.client.models import ExperimentDetails

_POLL_S = 0.25


def run_experiment(
    config: Path, folder: Path, *, overrides: Mapping[str, Any], template: str | None = None
) -> Checkpoint:
    """Create the experiment, or continue the one of an earlier attempt, and wait for its best checkpoint."""
    from trek.client.client import Client

    label = f"flow:{os.environ['TREK_FLOW_TASK']}"
    with Client() as client, _noticing_interrupt() as interrupt:
        found = _find_unfinished(client, label)
        if found is not None:
            number = _wake(client, found)
        else:
            number = _create(client, config, folder, overrides=overrides, template=template, labels=[label])
        details = _follow(client, number, interrupt)
        if details.state != "completed":
            raise _to_error(details)
        return _open_best_checkpoint(client, number)


def _find_unfinished(client: Client, label: str) -> int | None:
    usable = [one.id for one in client.experiments() if label in one.labels and one.state not in ("errored", "killed")]
    return usable[0] if usable else None


def _wake(client: Client, number: int) -> int:
    print(f"continuing experiment {number}", flush=True)
    if client.experiment(number).state == "paused":
        client.activate_experiment(number)
    return number


def _create(client: Client, config: Path, folder: Path, **settings: Any) -> int:
    """Created with its label, so that an interruption at any moment leaves none behind that cannot be found again."""
    from trek import Experiment

    try:
        made = Experiment(config, folder, client=client, **settings)
    except TrekError as error:
        kind = InputError if isinstance(error, InputError) else OutsideError
        raise kind(f"the experiment was not created: {error}") from error
    print(f"created experiment {made.id}", flush=True)
    return made.id


@contextlib.contextmanager
def _noticing_interrupt() -> Iterator[threading.Event]:
    """An event that SIGTERM sets, so that the experiment is paused before this process ends."""
    event = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)


def _follow(client: Client, number: int, interrupt: threading.Event) -> ExperimentDetails:
    from trek.client.models import ENDED

    cursor = 0
    while True:
        # Fetched before the lines, so that these include everything written before the experiment ended.
        details = client.experiment(number)
        while lines := client.experiment_logs(number, after=cursor):
            cursor = lines[-1].id
            print("\n".join(f"[trial {line.trial_id} rank {line.rank}] {line.text}" for line in lines), flush=True)
        if details.state in ENDED:
            return details
        if interrupt.wait(_POLL_S):
            client.pause_experiment(number)
            raise OutsideError(f"experiment {number} was paused because its step was interrupted.")


def _to_error(details: ExperimentDetails) -> TrainingError:
    traceback = next((one.traceback for one in details.trials if one.error == details.error), "")
    why = details.error.rstrip(".") if details.state == "errored" else "it was killed"
    return TrainingError(f"experiment {details.id}: {why}", traceback_text=traceback)


def _open_best_checkpoint(client: Client, number: int) -> Checkpoint:
    from trek import Checkpoint

    try:
        best = client.best_checkpoint(number)
    except TrekError as error:
        raise OutsideError(str(error)) from error
    if Path(best.path).exists():
        return Checkpoint(best.path)
    client.download_checkpoint(best.uuid, scratch() / best.uuid)  # it is on the master's machine
    return Checkpoint(scratch() / best.uuid)
