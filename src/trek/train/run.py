"""`trek.run`: run an explicit training loop on one process, one GPU, or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trek.elastic.joining import is_elastic
from trek.engines import open_engine
from trek.errors import InputError
from trek.train.folders import check_places, check_reached, open_run_folder
from trek.train.jobs.elastic_job import run_anywhere
from trek.train.jobs.job import own_world
from trek.train.jobs.job_output import JobOutput
from trek.train.jobs.messages import send_message
from trek.train.jobs.returned_source import check_source
from trek.train.jobs.servers import check_servers
from trek.train.loggers.base import Logger
from trek.train.loggers.choice import LoggerChoice, split_loggers
from trek.train.loggers.sent import SentLogger
from trek.train.loop.stopping import Interrupted, StopOnSignals, Stopped, StopRequest
from trek.train.settings import TrainSettings
from trek.train.trial_host import find_host
from trek.train.workers import read_workers
from trek.world import World

if TYPE_CHECKING:
    from trek.train.checkpointing.checkpoint_folder import CheckpointFolder


def run(
    train_fn: Callable[..., Any],
    *args: Any,
    workers: int | tuple[int, int] | None = None,
    servers: int = 0,
    engine: str = "local",
    engine_options: Mapping[str, Any] | None = None,
    name: str | None = None,
    checkpoint_dir: Path | str | None = None,
    resume: CheckpointFolder | Path | str | None = None,
    loggers: Sequence[Logger | LoggerChoice] = (),
    **settings: Any,
) -> Any:
    """Call `train_fn(traveler, *args)` on `workers` processes and return what the leader's call returned.

    With `workers=(1, 4)`, processes may be killed and added while the loop goes on: see docs/elastic.md. Without
    `workers`, one process is started for each GPU, or one on the CPU if there is no GPU. `checkpoint_dir`,
    `resume` and `loggers` are those of `trek.fit`; `settings` are fields of TrainSettings: precision, accumulate, …
    After SIGTERM, the loop ends at the next batch with everything saved, and None is returned; after Ctrl-C,
    `KeyboardInterrupt` is raised. `train_fn` returns numbers, text, bytes, tensors, NumPy arrays, DataFrames, and
    lists, tuples, sets and dicts of them; anything else is refused, also from one process.
    """
    if not callable(train_fn):
        raise InputError(f"train_fn must be a function that takes a Traveler, got {type(train_fn).__name__}.")
    check_source(train_fn)
    named, own_loggers = split_loggers(loggers)
    chosen = TrainSettings.of(loggers=named, **settings)
    check_places(checkpoint_dir=checkpoint_dir, resume=resume)
    where = open_engine(engine, engine_options)
    check_servers(servers, strategy=chosen.strategy)
    options = chosen.strategy_options
    given = None if workers is None else read_workers(workers, strategy=chosen.strategy, options=options)
    # Servers belong to a gang, and so does a worker on other machines.
    world = own_world(given, may_start_here=where.shares_disk) if not servers else None
    num_workers = given or (world.size if world else _default_workers())
    if world is None and num_workers == 1 and not servers and where.shares_disk:
        world = World.from_env()
    default_name: str = getattr(train_fn, "__name__", "run").strip("<>")
    is_resumed = resume == "latest" and checkpoint_dir is None
    folder = open_run_folder(default_name if name is None else name, world=world, is_resumed=is_resumed)
    job = _Run(
        train_fn,
        args,
        settings=chosen,
        folder=folder,
        checkpoint_dir=checkpoint_dir if checkpoint_dir is not None or not folder else folder / "checkpoints",
        resume=resume,
        loggers=own_loggers if world is not None else [SentLogger(send_message)] if own_loggers else (),
    )
    from trek.train.jobs.returned import unpack  # which loads torch

    if world is not None:
        return unpack(job.packed(world))
    output = JobOutput(loggers=own_loggers)
    returned = run_anywhere(
        job,
        origin=train_fn,
        workers=num_workers,
        num_servers=servers,
        engine=where,
        output=output,
        resumed=job.resumed if chosen.on_hang == "restart" else None,
    )
    return None if returned is None else unpack(returned)


class _Run:
    """One loop as a function of the World, so that it can be sent to other processes."""

    def __init__(
        self,
        train_fn: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        settings: TrainSettings,
        folder: Path | None,
        checkpoint_dir: Path | str | None,
        resume: CheckpointFolder | Path | str | None,
        loggers: Sequence[Logger],
    ) -> None:
        self._train_fn = train_fn
        self._args = args
        self._settings = settings
        self._folder = folder
        self._checkpoint_dir = checkpoint_dir
        self._resume = resume
        self._loggers = loggers

    def resumed(self) -> Self:
        """The same loop, from its last checkpoint on."""
        self._resume = "latest"
        return self

    def __call__(self, world: World) -> Any:
        try:
            return self.packed(world) if world.is_leader or is_elastic() else self.call(world)
        except Interrupted:  # raised by whoever started this process, who was interrupted too
            return None

    def packed(self, world: World) -> str:
        """What the train function returned, in the same form from one process as from several."""
        from trek.train.jobs.returned import pack  # before anything can have changed this process's folder or path

        return pack(self.call(world))

    def call(self, world: World) -> Any:
        from trek.train.traveler import Traveler

        stop = StopRequest()
        check_reached(self._checkpoint_dir)
        traveler = Traveler(
            self._settings,
            world=world,
            host=find_host(world, stop=stop),
            checkpoint_dir=self._checkpoint_dir,
            folder=self._folder,
            resume=self._resume,
            loggers=self._loggers,
            stop=stop,
        )
        returned = None
        with StopOnSignals(stop), traveler:
            try:
                returned = self._train_fn(traveler, *self._args)
            except Stopped as end:
                if end.reason == "dismissed":  # the others go on without this process
                    raise
        if stop.reason == "interrupted":
            raise Interrupted
        return returned


def _default_workers() -> int:
    import torch

    return open_engine("local").slots() if torch.cuda.is_available() else 1
