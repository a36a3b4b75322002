"""How long training stands still when a worker is killed, and when one joins: beside torchrun and torchft, in one run.

Three workers train a small model on gloo, and one of them is killed with SIGKILL. The stall is the longest time after
that in which nobody completed a step. Trek's workers are killed again and again in one job, and replaced; the pause of
those who train while the new one comes in is the second figure. torchrun starts all workers anew, and torchft goes on
without the lost one; each of their kills is in a job of its own. torchft comes with the extra `bench`.

    python benchmarks/elastic/recovery.py [--kills 20] [--peer-kills 5]
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.nn.functional as F
from torch import nn

import trek

WORKERS = 3
KILL_EVERY_S = 2.0
PATIENCE_S = 90.0

_STEPS = """
out = open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a")
def told(): out.write(json.dumps([time.time(), 0, 0]) + "\\n"); out.flush(); time.sleep(0.005)
"""
TORCHRUN = f"""
import json, os, sys, time, torch, torch.distributed as dist
from torch import nn
folder = sys.argv[1]
# By a file of each attempt: in the agent's store gloo finds the addresses of processes that have died, and restarts
# fail one after another.
rank, size, attempt = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
meeting = "file://" + os.path.join(folder, "attempt-" + attempt)
dist.init_process_group("gloo", init_method=meeting, rank=int(rank), world_size=int(size))
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{_STEPS}
while True:
    model(torch.randn(16, 64)).sum().backward()
    optimizer.step(); optimizer.zero_grad()
    told()
"""
TORCHFT = f"""
import json, os, sys, time, torch
from datetime import timedelta
from torch import nn
from torch.distributed import TCPStore
from torchft import Manager, Optimizer, ProcessGroupGloo
folder, number, lighthouse = sys.argv[1:]
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1, replica_id=number, rank=0, world_size=1,
    load_state_dict=model.load_state_dict, state_dict=model.state_dict, hostname="127.0.0.1",
    store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=lighthouse,
)
optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), lr=0.01))
{_STEPS}
while True:
    optimizer.zero_grad()
    model(torch.randn(16, 64)).sum().backward()
    # Its DistributedDataParallel asserts after a lost worker with this torch; gradients in one message are as fast.
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    manager.allreduce(gradients).wait()
    before = manager.current_step()
    optimizer.step()
    if manager.current_step() > before:  # it was not dropped
        told()
"""


def loop(tr: trek.Traveler, folder: str, pause_s: float) -> None:
    """Train until the file `stop` is there, writing down when steps are done, and with how many workers."""
    x, y = torch.randn(4096, 64), torch.randint(8, (4096,))
    model = tr.add_model(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    data = tr.add_loader((x, y), global_batch_size=48, shuffle=True)
    with (Path(folder) / f"{os.getpid()}.jsonl").open("a") as out:
        for _ in tr.epochs(1_000_000):
            for inputs, labels in tr.train(data):
                tr.backward(F.cross_entropy(model(inputs), labels))
                if tr.step(optimizer):
                    out.write(json.dumps([time.time(), tr.world.generation, tr.world.size]) + "\n")
                    out.flush()
                if (Path(folder) / "stop").exists():
                    tr.stop.request("user")
                time.sleep(pause_s)


def steps(folder: Path) -> dict[int, list[tuple[float, int, int]]]:
    """Of each process: when it completed its steps, in which generation, and how many workers there were."""
    found = {}
    for path in folder.glob("*.jsonl"):
        whole = path.read_text().rpartition("\n")[0]
        found[int(path.stem)] = [tuple(json.loads(line)) for line in whole.splitlines()]
    return found


def active(folder: Path) -> list[int]:
    """The processes that completed a step a moment ago."""
    now = time.time()
    return sorted(pid for pid, done in steps(folder).items() if done and now - done[-1][0] < 0.3)


def stall_after(folder: Path, killed_s: float, *, until_s: float) -> float:
    """The longest time without any step between the kill and `until_s`."""
    times = sorted(at for done in steps(folder).values() for at, *_ in done)
    window = [killed_s, *(at for at in times if killed_s < at < until_s)]
    return max((after - before for before, after in itertools.pairwise(window)), default=float("nan"))


def join_pauses(folder: Path) -> list[float]:
    """For every generation that is larger than the one before: the time without a step between them."""
    times: dict[int, list[float]] = defaultdict(list)
    sizes: dict[int, int] = {}
    for done in steps(folder).values():
        for at, generation, size in done:
            times[generation].append(at)
            sizes[generation] = size
    pairs = [(one, two) for one, two in itertools.pairwise(sorted(times)) if sizes[two] > sizes[one]]
    return [min(times[two]) - max(times[one]) for one, two in pairs]


def wait_for(condition: Callable[[], bool]) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s")
        time.sleep(0.05)


def run_trek(num_kills: int) -> tuple[list[float], list[float]]:
    """The stalls of an elastic job, and its pauses when workers join."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, __file__, "--loop", name]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kills: list[float] = []
        for number in range(num_kills):
            wait_for(lambda: len(active(folder)) == WORKERS)
            time.sleep(KILL_EVERY_S)
            victims = active(folder)
            os.kill(victims[number % len(victims)], signal.SIGKILL)
            kills.append(time.time())
        wait_for(lambda: len(active(folder)) == WORKERS)
        (folder / "stop").touch()
        process.wait(timeout=PATIENCE_S)
        # The new worker joins later: the stall is over by then.
        return [stall_after(folder, at, until_s=at + KILL_EVERY_S / 2) for at in kills], join_pauses(folder)


@contextmanager
def torchrun(folder: Path) -> Iterator[None]:
    """A job of torchrun that starts its workers again."""
    script = folder / "train.py"
    script.write_text(TORCHRUN)
    options = [f"--nproc-per-node={WORKERS}", "--max-restarts=10", "--monitor-interval=0.1", "--standalone"]
    with running([sys.executable, "-m", "torch.distributed.run", *options, str(script), str(folder)]):
        yield


@contextmanager
def torchft(folder: Path) -> Iterator[None]:
    """Three replicas of torchft with their lighthouse, as its defaults are."""
    from torchft.coordination import LighthouseServer

    script = folder / "train.py"
    script.write_text(TORCHFT)
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1)
    commands = [[sys.executable, str(script), str(folder), str(n), lighthouse.address()] for n in range(WORKERS)]
    try:
        with running(*commands):
            yield
    finally:
        lighthouse.shutdown()


@contextmanager
def running(*commands: list[str]) -> Iterator[None]:
    """Processes, which are killed at the end with what they started."""
    nowhere = subprocess.DEVNULL
    processes = [subprocess.Popen(command, stdout=nowhere, stderr=nowhere) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.kill()
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait()


def peer_stall(folder: Path, victim: int) -> float:
    """The stall after one of the workers of a job was killed."""
    wait_for(lambda: len(active(folder)) == WORKERS)
    time.sleep(KILL_EVERY_S)
    os.kill(active(folder)[victim], signal.SIGKILL)
    killed_s = time.time()
    time.sleep(0.5)  # steps that were under way are done
    wait_for(lambda: len(active(folder)) >= WORKERS - 1)
    return stall_after(folder, killed_s, until_s=time.time())


def peer_stalls(start: Callable[[Path], Any], num_kills: int) -> list[float]:
    """Those of several kills, each in a job of its own."""
    found = []
    for number in range(num_kills):
        with tempfile.TemporaryDirectory() as name, start(Path(name)):
            found.append(peer_stall(Path(name), number % WORKERS))
    return found


def told(name: str, values: list[float]) -> str:
    """Median and worst of some times."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"{name:<14} median {statistics.median(values):.3f} s, p99 {p99:.3f} s ({len(values)} times)"


def main() -> None:
    """Print the stalls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--peer-kills", type=int, default=5)
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loop:
        trek.run(loop, args.loop, 0.005, workers=(1, WORKERS), show_progress=False)
        return
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, {WORKERS} workers on gloo", flush=True)
    stalls, joins = run_trek(args.kills)
    print(told("trek", stalls), flush=True)
    print(told("trek, joining", joins), flush=True)
    print(told("torchrun", peer_stalls(torchrun, args.peer_kills)), flush=True)
    if importlib.util.find_spec("torchft") is None:
        print("torchft is not installed")
    else:
        print(told("torchft", peer_stalls(torchft, args.peer_kills)), flush=True)


if __name__ == "__main__":
    main()
