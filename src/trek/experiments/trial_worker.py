"""What every process of a trial runs: `python -m trek.experiments.trial_worker`.

Asks the control plane what to train, unpacks the user's code, trains its Trial or runs its command, and writes its
outcome. Exit codes: 0 done (stopped included), 1 the user's code failed, 2 a mistake Trek can name, 3 the outside
failed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from trek.client.client import Client
from trek.client.models import Assignment
from trek.elastic.joining import is_elastic
from trek.experiments.command import run_command
from trek.experiments.config import ExperimentConfig
from trek.experiments.package import unpack_once
from trek.experiments.trial_process import TrialProcess, retry_until_reachable
from trek.system.leaving import leave
from trek.train.jobs.rank_outcome import RankOutcome
from trek.train.loop.data_wait import DataWait
from trek.train.loop.stopping import Stopped, StopRequest
from trek.world import World

if TYPE_CHECKING:
    from trek.train.session import Outcome


def main(environ: Mapping[str, str] = os.environ, *, train: Callable[..., Outcome] | None = None) -> int:
    """Run this process's part of its trial; returns the exit code. `train` replaces `train_trial`."""
    if "TREK_UMASK" in environ:  # the user's: what the trial writes elsewhere is not the control plane's to withhold
        os.umask(int(environ["TREK_UMASK"], 8))
    place = TrialProcess.from_env(environ)
    world = World.from_env(environ)
    outcome = _run(place, world, train=train)
    if outcome is None:
        return 0
    outcome.write(place.folder)
    # One of many workers is only replaced if it ends well.
    return outcome.exit_code or int(outcome.kind == "rejected" and is_elastic(environ))


def _run(place: TrialProcess, world: World, *, train: Callable[..., Outcome] | None) -> RankOutcome | None:
    """None for a worker whose trial goes on without it."""
    stop = StopRequest()
    signal.signal(signal.SIGTERM, lambda *_: stop.request("preempted"))
    try:
        with place.open_client() as client:
            assignment = place.assignment(client)
            unpack_once(retry_until_reachable(lambda: client.archive(assignment.archive)), place.code)
            os.chdir(place.code)
            config = ExperimentConfig.parse(assignment.config)
            if config.command is not None:
                return run_command(
                    config.command, place=place, world=world, hparams=assignment.hparams, client=client, stop=stop
                )
            result = _train(config, assignment, place, world, client=client, stop=stop, train=train)
    except BaseException as error:  # noqa: BLE001 - user code may also raise SystemExit
        if isinstance(error, Stopped) and error.reason == "dismissed":
            return None
        outcome = RankOutcome.of_error(world.rank, error)
        print(outcome.traceback.rstrip() or f"trek: error: {outcome.message}", file=sys.stderr, flush=True)
        return outcome
    return RankOutcome(world.rank, "done", stop_reason=result.stop_reason)


def _train(
    config: ExperimentConfig,
    assignment: Assignment,
    place: TrialProcess,
    world: World,
    *,
    client: Client,
    stop: StopRequest,
    train: Callable[..., Outcome] | None,
) -> Outcome:
    # Imported here because they load torch, which a command may not need.
    from trek.experiments.entrypoint import load_entrypoint
    from trek.experiments.trial_settings import job_identity, trial_settings
    from trek.experiments.trial_storage_choice import open_trial_storage, resume_point, tell_storage
    from trek.train.session import train_trial

    storage = open_trial_storage(assignment, place=place, client=client)
    tell_storage(storage, world=world)
    with ExitStack() as stack:
        trial_class = load_entrypoint(config.trial_class, place.code)
        # Any worker of an elastic trial may become the leader.
        is_reporting = world.is_leader or is_elastic()
        logger = place.open_logger(client, config=config, stop=stop) if is_reporting else None
        wait = DataWait()
        stack.enter_context(place.open_system_reporter(client, world=world, waited_s=wait.seconds))
        return (train or train_trial)(
            trial_class,
            hparams=assignment.hparams,
            settings=trial_settings(config, assignment),
            world=world,
            checkpoint_dir=storage,
            folder=place.folder.path,
            data=config.data,
            experiment_config=assignment.config,
            experiment_id=assignment.experiment_id,
            trial_id=assignment.trial_id,
            loggers=[stack.enter_context(logger)] if logger else [],
            stop=stop,
            resume=resume_point(assignment, storage),
            name=assignment.name,
            owner=assignment.owner,
            job=job_identity(assignment),
            wait=wait,
        )


if __name__ == "__main__":
    leave(main())
