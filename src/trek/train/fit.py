"""`trek.fit`: train a Trial from Python, here or on several processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from trek.engines import open_engine
from trek.errors import ConfigError
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, open_checkpoint
from trek.train.folders import check_places, check_reached, open_run_folder
from trek.train.jobs.elastic_job import run_anywhere
from trek.train.jobs.job import own_world
from trek.train.jobs.job_output import JobOutput
from trek.train.jobs.messages import send_message
from trek.train.jobs.servers import check_servers
from trek.train.length import Length
from trek.train.loggers.base import Logger
from trek.train.loggers.choice import LoggerChoice, split_loggers
from trek.train.loggers.jsonl import JSONLLogger, read_rows
from trek.train.loggers.sent import SentLogger
from trek.train.loop.stopping import Interrupted, StopRequest
from trek.train.metrics.goal import Goal
from trek.train.result import Result, flat_row
from trek.train.session import Outcome, train_trial
from trek.train.settings import TrainSettings
from trek.train.trainer import check_trial_class
from trek.train.trial import Trial
from trek.train.trial_host import find_host
from trek.train.workers import read_workers
from trek.world import World

_DEFAULTS = TrainSettings()


def fit(
    trial_class: type[Trial],
    *,
    hparams: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    max_length: Length | None = _DEFAULTS.max_length,
    validation_period: Length | None = _DEFAULTS.validation_period,
    checkpoint_period: Length | None = _DEFAULTS.checkpoint_period,
    workers: int | tuple[int, int] = 1,
    servers: int = 0,
    strategy: str | None = _DEFAULTS.strategy,
    engine: str = "local",
    engine_options: Mapping[str, Any] | None = None,
    seed: int = _DEFAULTS.seed,
    precision: str = _DEFAULTS.precision,
    resume: CheckpointFolder | Path | str | None = None,
    name: str | None = None,
    checkpoint_dir: Path | str | None = None,
    loggers: Sequence[Logger | LoggerChoice] = (),
    **settings: Any,
) -> Result:
    """Train `trial_class` to `max_length`, which must be given, and return its metrics and checkpoints.

    One worker trains in this process. Several are started on `engine` and kept in sync by `strategy` ("ddp" by
    default). With engine "ray", all of them run on a Ray cluster: see docs/cluster.md for its `engine_options`. With
    `workers=(1, 4)`, processes may be killed and added while the run goes on, and as many as there are train: see
    docs/elastic.md. The global batch does not change with the number of workers, and so neither do the
    results: `hparams["global_batch_size"]` is divided among them. A script started by torchrun, mpirun or srun
    trains in the processes that the launcher started. With strategy "ps", `servers` parameter servers hold the
    parameters.

    `resume` is a checkpoint to resume from, or "latest" for the newest one of the last run with the same `name`.
    `checkpoint_dir` is a folder or URL to use instead of a folder of the run. `loggers` are added to the run's JSONL
    file: Logger objects, or names such as "tensorboard". Further `settings` are fields of TrainSettings: accumulate,
    clip_norm, …

    After SIGTERM, the run ends at the next batch with everything saved, and `stop_reason` is "signal"; after Ctrl-C,
    `KeyboardInterrupt` is raised once it is saved.
    """
    check_trial_class(trial_class)
    for what, given in (("hparams", hparams), ("data", data)):
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
            raise ConfigError(f"{what} must be a dict of values by name, got {given!r}.")
    named, own_loggers = split_loggers(loggers)
    chosen = TrainSettings.of(
        loggers=named,
        max_length=max_length,
        validation_period=validation_period,
        checkpoint_period=checkpoint_period,
        strategy=strategy,
        seed=seed,
        precision=precision,
        **settings,
    )
    if max_length is None:
        raise ConfigError("trek.fit needs a max_length. Pass one, such as max_length=trek.epochs(3).")
    check_places(checkpoint_dir=checkpoint_dir, resume=resume)
    check_servers(servers, strategy=strategy)
    chosen_workers = read_workers(workers, strategy=strategy, options=chosen.strategy_options)
    where = open_engine(engine, engine_options)
    # Servers belong to a gang, and so does a worker on other machines.
    world = own_world(chosen_workers, may_start_here=where.shares_disk) if not servers else None
    chosen_name = trial_class.__name__.lower() if name is None else name
    is_resumed = resume == "latest" and checkpoint_dir is None
    folder = open_run_folder(chosen_name, world=world, is_resumed=is_resumed)
    is_near = world is not None or where.shares_disk
    sent = own_loggers if is_near or folder is None else [JSONLLogger.open(folder), *own_loggers]
    job = _Fit(
        trial_class,
        name=chosen_name,
        hparams=dict(hparams or {}),
        data=dict(data or {}),
        settings=chosen,
        folder=folder,
        checkpoint_dir=checkpoint_dir,
        resume=_resume(resume),
        loggers=own_loggers if world is not None else [SentLogger(send_message)] if sent else (),
        is_near=is_near,
    )
    if world is not None:
        outcome = job(world)
        if outcome["stop_reason"] == "interrupted":
            raise Interrupted
        return _result(outcome, goal=job.goal)
    output = JobOutput(loggers=sent, hparams=job.hparams)
    returned = run_anywhere(
        job,
        origin=trial_class,
        workers=chosen_workers,
        num_servers=servers,
        engine=where,
        output=output,
        resumed=job.resumed if chosen.on_hang == "restart" else None,
    )
    return _result(returned, goal=job.goal)


class _Fit:
    """One fit as a function of the World, so that it can be sent to other processes."""

    def __init__(
        self,
        trial_class: type[Trial],
        *,
        name: str,
        hparams: dict[str, Any],
        data: dict[str, Any],
        settings: TrainSettings,
        folder: Path | None,
        checkpoint_dir: Path | str | None,
        resume: Path | Literal["latest"] | None,
        loggers: Sequence[Logger],
        is_near: bool,
    ) -> None:
        self.trial_class = trial_class
        self.name = name
        self.hparams = hparams
        self.data = data
        self.settings = settings
        self.folder = folder
        self.checkpoint_dir = checkpoint_dir if checkpoint_dir is not None or not folder else folder / "checkpoints"
        self.resume = resume
        self.loggers = loggers
        self.is_near = is_near

    @property
    def goal(self) -> Goal:
        return Goal(self.settings.metric, self.settings.smaller_is_better)

    def resumed(self) -> Self:
        """The same fit, from its last checkpoint on."""
        self.resume = "latest"
        return self

    def __call__(self, world: World) -> dict[str, Any]:
        stop = StopRequest()
        check_reached(self.checkpoint_dir)
        outcome = train_trial(
            self.trial_class,
            hparams=self.hparams,
            data=self.data,
            settings=self.settings,
            world=world,
            checkpoint_dir=self.checkpoint_dir,
            folder=self.folder,
            loggers=[*([JSONLLogger.open(self.folder)] if self.folder and self.is_near else []), *self.loggers],
            stop=stop,
            resume=self.resume,
            name=self.folder.name if self.folder else self.name,
            host=find_host(world, stop=stop),
        )
        return _to_json(outcome)


def _to_json(outcome: Outcome) -> dict[str, Any]:
    paths = {"checkpoint": outcome.checkpoint, "best_checkpoint": outcome.best_checkpoint}
    return {
        "folder": str(outcome.folder),
        "stop_reason": outcome.stop_reason,
        "epochs": outcome.epochs,
        **{key: str(path) if path else None for key, path in paths.items()},
    }


def _result(outcome: Mapping[str, Any], *, goal: Goal) -> Result:
    folder = Path(outcome["folder"])
    # A resumed run reports the rows after its checkpoint again; the later ones replace the earlier ones.
    rows = {(row["group"], row["batches"]): flat_row(row) for row in read_rows(folder / "metrics.jsonl")}
    last, best = (CheckpointFolder(outcome[key]) if outcome[key] else None for key in ("checkpoint", "best_checkpoint"))
    return Result(
        path=folder,
        metrics=list(rows.values()),
        epochs=list(outcome["epochs"]),
        stop_reason=outcome["stop_reason"],
        checkpoint=last,
        best_checkpoint=best,
        goal=goal,
    )


def _resume(resume: CheckpointFolder | Path | str | None) -> Path | Literal["latest"] | None:
    if resume is None:
        return None
    if resume == "latest":
        return "latest"
    return resume.path if isinstance(resume, CheckpointFolder) else open_checkpoint(resume).path
