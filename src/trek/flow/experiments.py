"""An experiment as a step: created as on the command line, followed to its end, its best checkpoint the result.

The control plane runs it; this process only watches. Interrupted, it pauses the experiment, and an attempt at the same
step of the same run goes on with that one: a label on the experiment tells which it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.errors import InputError, OutsideError, TrainingError
from trek.flow.performing import scratch

if TYPE_CHECKING:
    from trek import Checkpoint
    from trek.client.client import Client
    from trek.client.models import Checkpoint as Record
    from trek.client.models import ExperimentDetails

_POLL_S = 0.25


def run_experiment(config: Path, folder: Path, *, overrides: Mapping[str, Any]) -> Checkpoint:
    """Create the experiment, or go on with the one that an earlier attempt left, and wait for its best checkpoint."""
    from trek.client.client import Client

    label = f"flow:{os.environ['TREK_FLOW_TASK']}"
    with Client() as client, _noticing_interrupt() as interrupt:
        found = _find_unfinished(client, label)
        number = _create(client, config, folder, overrides, label=label) if found is None else _wake(client, found)
        details = _follow(client, number, interrupt)
        if details.state != "completed":
            raise _to_error(details)
        return _open_checkpoint(client, _choose_best(client, details))


def _find_unfinished(client: Client, label: str) -> int | None:
    usable = [one.id for one in client.experiments() if label in one.labels and one.state not in ("errored", "killed")]
    return usable[0] if usable else None


def _wake(client: Client, number: int) -> int:
    print(f"going on with experiment {number}", flush=True)
    if client.experiment(number).state == "paused":
        client.activate_experiment(number)
    return number


def _create(client: Client, config: Path, folder: Path, overrides: Mapping[str, Any], *, label: str) -> int:
    settings = [part for name, value in overrides.items() for part in ("--config", f"{name}={_spell(value)}")]
    command = [sys.executable, "-m", "trek", "experiment", "create", str(config), str(folder), *settings]
    done = subprocess.run([*command, "--no-follow", "--json"], capture_output=True, text=True, check=False)
    print(done.stderr, end="", flush=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InputError(f"the experiment was not created: {last.removeprefix('trek: error: ')}")
    created = json.loads(done.stdout)
    client.change_experiment(created["id"], labels=[*created["labels"], label])
    return int(created["id"])


def _spell(value: Any) -> str:
    return str(value) if isinstance(value, str | Path) else json.dumps(value)


@contextlib.contextmanager
def _noticing_interrupt() -> Iterator[threading.Event]:
    """An event that SIGTERM sets, so that an experiment which is just being made is not left behind unlabelled."""
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
        # Asked before the lines: what an experiment wrote before it ended is then among them.
        details = client.experiment(number)
        while lines := client.experiment_logs(number, after=cursor):
            cursor = lines[-1].id
            print("\n".join(f"[trial {line.trial_id} rank {line.rank}] {line.text}" for line in lines), flush=True)
        if details.state in ENDED:
            return details
        if interrupt.wait(_POLL_S):
            client.pause_experiment(number)
            raise OutsideError(f"experiment {number} was paused, since its step was interrupted.")


def _to_error(details: ExperimentDetails) -> TrainingError:
    traceback = next((one.traceback for one in details.trials if one.error == details.error), "")
    why = details.error.rstrip(".") if details.state == "errored" else "it was killed"
    return TrainingError(f"experiment {details.id}: {why}", traceback_text=traceback)


def _choose_best(client: Client, details: ExperimentDetails) -> Record:
    """The best trial's checkpoint with the best metric; its newest where none was validated."""
    saved = client.checkpoints(experiment_id=details.id, trial_id=details.best_trial)
    if not saved:
        raise OutsideError(f"experiment {details.id} left no checkpoint. See checkpoint_policy in its config.")
    sign = 1 if details.smaller_is_better else -1
    scored = [(sign * value, one.uuid) for one in saved if (value := one.metrics.get(details.metric)) is not None]
    return next(one for one in saved if one.uuid == min(scored)[1]) if scored else saved[0]


def _open_checkpoint(client: Client, record: Record) -> Checkpoint:
    from trek import Checkpoint

    if Path(record.path).exists():
        return Checkpoint(record.path)
    client.download_checkpoint(record.uuid, scratch() / record.uuid)  # it lies on the master's machine
    return Checkpoint(scratch() / record.uuid)
