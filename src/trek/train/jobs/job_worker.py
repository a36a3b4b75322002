"""`python -m trek.train.jobs.job_worker`: what each process of a job runs. See `trek.train.jobs.job`."""

from __future__ import annotations

import pickle
import sys
from functools import partial
from types import ModuleType
from typing import Any

from trek.elastic.joining import is_elastic
from trek.engines.member_folder import MemberFolder
from trek.system.leaving import leave
from trek.train.jobs.hang_report import WAITING, Lookout
from trek.train.jobs.job import PAYLOAD
from trek.train.jobs.messages import send_message
from trek.train.jobs.rank_outcome import RankOutcome
from trek.train.loop.progress import show_bars_through
from trek.train.loop.stopping import Stopped
from trek.world import World


def main(folder: MemberFolder) -> int:
    """Run the job's function on this rank; the exit code."""
    world = World.from_env()
    Lookout(folder)
    try:
        returned = _load(folder)(world)
        RankOutcome(world.rank, "done", returned=returned if world.is_leader or is_elastic() else None).write(folder)
    except Stopped:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raised ends this process
        outcome = RankOutcome.of_error(world.rank, error)
        outcome.write(folder)
        print(_shown(outcome), file=sys.stderr, flush=True)
        return outcome.exit_code or 1
    return 0


def _shown(outcome: RankOutcome) -> str:
    """What to print: one line for a rank that lost its peers, since the cause is with them."""
    if outcome.where.startswith(WAITING):
        return f"rank {outcome.rank} failed {outcome.where}: {outcome.message.splitlines()[0]}"
    return outcome.traceback or outcome.message


def _load(folder: MemberFolder) -> Any:
    with (folder.path / PAYLOAD).open("rb") as file:
        # Both were written by the program that started this process.
        path, sys.argv[:], shows_bars, is_near = pickle.load(file)  # noqa: S301
        sys.path[:] = path if is_near else [*sys.path, *(one for one in path if one not in sys.path)]
        function, origin = pickle.load(file)  # noqa: S301
    _house(origin)
    if shows_bars:
        show_bars_through(send_message)
    return function


def _house(origin: Any) -> None:
    """Put what was pickled by value with `origin` into a module of that name.

    Whoever pickles one of those objects by its name, as the workers of a DataLoader do, then finds it.
    """
    while isinstance(origin, partial):
        origin = origin.func
    home = origin if hasattr(origin, "__name__") else type(origin)
    if home.__module__ != "__main__" and home.__module__ in sys.modules:  # imported by name, as everything in it
        return
    module = sys.modules.setdefault(home.__module__, ModuleType(home.__module__))
    for value in (home, *vars(home).values()):
        travelled = getattr(value, "__globals__", {})
        vars(module).update({name: one for name, one in travelled.items() if not name.startswith("__")})
    vars(module)[home.__name__] = home


if __name__ == "__main__":
    leave(main(MemberFolder.from_env()))
