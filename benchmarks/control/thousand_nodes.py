"""What the control plane holds: 1,000 simulated nodes and 10,000 simulated trials, a real store and scheduler.

    python benchmarks/control/thousand_nodes.py --nodes 1000 --slots 8 --trials 10000 --rows 100 --listeners 500

Nodes run no processes (`trek.testing.simulated_engine`). Experiments, the search, the queue, the supervisor's rounds
and the SQLite store are those of a master. Printed: trials and metric rows per second, the longest round of the
supervisor, gangs of many members, and how long a change takes to reach pages that listen to a real master over HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from trek.client import models
from trek.client.client import Address, Client
from trek.client.embedded import ensure_running
from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store
from trek.control.trials.supervisor import Supervisor
from trek.elastic.membership import Membership
from trek.elastic.membership_settings import MembershipSettings
from trek.experiments.package import pack
from trek.system.clock import SystemClock
from trek.testing.simulated_engine import SimulatedEngine

TRAINED = 100
WAIT_S = 60.0


@dataclass
class Plane:
    """A control plane without HTTP, over a store in a folder."""

    engine: SimulatedEngine
    supervisor: Supervisor
    services: Services
    archive: str
    rounds_s: list[float] = field(default_factory=list)

    def create(self, searcher: dict[str, object], *, slots: int = 1) -> int:
        """An experiment whose trials take `slots` each."""
        config = {
            "name": "simulated",
            "entrypoint": "model_def:Tiny",
            "hyperparameters": {"lr": {"type": "log", "minval": -4, "maxval": -1}},
            "searcher": {"metric": "loss", "max_length": {"batches": TRAINED}, **searcher},
            "resources": {"slots_per_trial": slots},
        }
        return self.services.experiments.create(models.CreateExperiment(config=config, archive=self.archive)).id

    def tick(self) -> None:
        """One round of the supervisor."""
        start = time.perf_counter()
        self.supervisor.tick()
        self.rounds_s.append(time.perf_counter() - start)


def main() -> None:
    """Measure one thing after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=8, help="slots of each node")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--experiments", type=int, default=100, help="that the trials are shared between")
    parser.add_argument("--rows", type=int, default=100, help="metric rows that each trial reports")
    parser.add_argument("--members", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--listeners", type=int, default=500)
    settings = parser.parse_args()
    with plane(nodes=settings.nodes, slots=settings.slots) as made:
        search(made, trials=settings.trials, experiments=settings.experiments, rows=settings.rows)
    for members in settings.members:
        with plane(nodes=settings.nodes, slots=settings.slots) as made:
            gang(made, members)
        membership(members)
    if settings.listeners:
        listen(settings.listeners)


@contextmanager
def plane(*, nodes: int, slots: int) -> Iterator[Plane]:
    """A control plane of simulated nodes in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        home, model = Path(folder) / "home", Path(folder) / "model"
        home.mkdir(mode=0o700)
        model.mkdir()
        (model / "model_def.py").write_text("class Tiny: ...")
        engine, store, clock = SimulatedEngine(num_nodes=nodes, slots_per_node=slots), Store.at(home), SystemClock()
        layout = Layout(home)
        supervisor = Supervisor(
            store, layout=layout, engine=engine, slots=engine.slots(), environment=lambda trial, run: {}, clock=clock
        )
        services = Services.over(store, layout=layout, runner=supervisor, clock=clock)
        package = pack(model)
        services.archives.put(package.data, sha256=package.sha256)
        yield Plane(engine, supervisor, services, package.sha256)


def search(made: Plane, *, trials: int, experiments: int, rows: int) -> None:
    """Random searches of so many trials in all, as many at once as there are slots."""
    start = time.perf_counter()
    settings = {"name": "random", "max_trials": trials // experiments, "max_concurrent_trials": made.supervisor.slots}
    created = [made.create(settings) for _ in range(experiments)]
    seconds = time.perf_counter() - start
    each = trials // experiments
    print(f"{made.supervisor.slots} slots; {experiments} experiments of {each} trials: created in {seconds:.1f} s")
    done, reported_s, start, cpu_s = 0, 0.0, time.perf_counter(), time.process_time()
    while not all(made.services.experiments.get(one).state in models.ENDED for one in created):
        made.tick()
        began = time.perf_counter()
        for trial_id in made.engine.gangs.keys() & made.supervisor.running.keys():  # started, and not finished yet
            report(made, trial_id, rows=rows)
            made.engine.gangs.pop(trial_id).finish()
            done += 1
        reported_s += time.perf_counter() - began
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_s
    rounds = sorted(made.rounds_s)
    print(f"{done} trials in {seconds:.1f} s: {done / seconds:.1f} trials/s, scheduled, started, reported and finished")
    print(f"CPU: {cpu_s / done * 1e3:.1f} ms per trial, which limits it to {done / cpu_s:.1f} trials/s")
    print(f"{done * rows} metric rows in {reported_s:.1f} s: {done * rows / reported_s:,.0f} rows/s, {rows} a report")
    middle = statistics.median(rounds)
    print(f"rounds of the supervisor: {len(rounds)}, median {middle:.2f} s, longest {rounds[-1]:.2f} s")


def report(made: Plane, trial_id: int, *, rows: int) -> None:
    """What a trial reports: rows of its training and a validation."""
    now_s = time.time()
    points = [
        models.MetricPoint(group="training", batches=batch + 1, metrics={"loss": 1.0 / (batch + 1)}, time_s=now_s)
        for batch in range(rows - 1)
    ]
    last = models.MetricPoint(group="validation", batches=TRAINED, metrics={"loss": trial_id % 97}, time_s=now_s)
    run = made.supervisor.running[trial_id].run
    made.services.trials.report(trial_id, models.Report(run=run, metrics=[*points, last], progress=1.0))


def gang(made: Plane, members: int) -> None:
    """A trial of so many processes, from the queue to its end."""
    if members > made.supervisor.slots:
        print(f"a gang of {members}: more than the {made.supervisor.slots} slots")
        return
    made.create({"name": "single"}, slots=members)
    start = time.perf_counter()
    while not made.supervisor.running:
        made.tick()
    started_s = time.perf_counter() - start
    (trial_id,) = made.engine.gangs
    report(made, trial_id, rows=2)
    made.engine.gangs[trial_id].finish()
    start = time.perf_counter()
    while made.supervisor.running:
        made.tick()
    ended_s = time.perf_counter() - start
    print(f"a gang of {members}: started in {started_s:.2f} s, taken in at its end in {ended_s:.2f} s")


def membership(members: int) -> None:
    """So many workers of an elastic job join and form a generation."""
    made = Membership(MembershipSettings(min_workers=1, max_workers=members))
    start = time.perf_counter()
    for number in range(members):
        made.join(f"worker-{number}", host=f"node-{number}", now_s=0.0)
    for number in range(members):
        made.ready(f"worker-{number}", now_s=0.0)
    print(f"an elastic job of {members}: all joined and formed in {time.perf_counter() - start:.2f} s")


def listen(listeners: int) -> None:
    """How long a change takes to reach all pages that listen to a master."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        os.environ["TREK_HOME"] = str(home)
        address = ensure_running(home)
        try:
            arrived = asyncio.run(_listen(address, listeners))
        finally:
            stop = [sys.executable, "-m", "trek", "cluster", "stop", "--kill"]
            subprocess.run(stop, check=False, capture_output=True)
    print(
        f"{len(arrived)} of {listeners} listeners hold an event stream; a change reached half of them after "
        f"{statistics.median(arrived):.2f} s, the last after {max(arrived):.2f} s"
    )


async def _listen(address: Address, listeners: int) -> list[float]:
    place = urlsplit(address.url)
    streams = [await _open(place.hostname or "", place.port or 80, address.token) for _ in range(listeners)]
    open_ones = [stream for stream in streams if stream is not None]
    waiting = [asyncio.create_task(_next_event(reader)) for reader, _ in open_ones]
    await asyncio.sleep(1.0)
    start = time.time()
    await asyncio.to_thread(_change, address)
    arrived = [when - start for when in await asyncio.gather(*waiting)]
    for _, writer in open_ones:
        writer.close()
    return arrived


async def _open(host: str, port: int, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    reader, writer = await asyncio.open_connection(host, port)
    request = f"GET /api/v1/changes/events HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(request.encode())
    status = await reader.readline()
    if b" 200 " not in status:
        writer.close()
        return None
    while (await reader.readline()).strip():
        continue
    await _read_until_data(reader)  # the first event says where the feed stands
    return reader, writer


async def _next_event(reader: asyncio.StreamReader) -> float:
    await asyncio.wait_for(_read_until_data(reader), WAIT_S)
    return time.time()


async def _read_until_data(reader: asyncio.StreamReader) -> None:
    while not (await reader.readline()).startswith(b"data:"):
        continue


def _change(address: Address) -> None:
    with Client(address) as client:
        client.set_template("changed", {"name": "changed"})


if __name__ == "__main__":
    main()
