"""How long survivors stand still after a worker is killed, and while one joins: Trek beside torchrun, in one run.

Three workers train a small model on gloo; every few seconds one of them is killed with SIGKILL. The stall is the time
between the last step before and the first step after, seen by the survivors (Trek), or by whoever comes next (torchrun,
whose agent starts all workers anew from a checkpoint). Also the cost when nothing happens, beside plain ddp, and of
`exact` beside `fast`, as ratios of the time of a step.

    python benchmarks/elastic/recovery.py [--kills 20]
"""

from __future__ import annotations

import argparse
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
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trek

WORKERS = 3
KILL_EVERY_S = 4.0

TORCHRUN = """
import json, os, sys, time, torch, torch.distributed as dist
from torch import nn
folder = sys.argv[1]
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
path = os.path.join(folder, "state.pt")
step = torch.load(path)["step"] if os.path.exists(path) else 0
out = open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a")
while not os.path.exists(os.path.join(folder, "stop")):
    model(torch.randn(16, 64)).sum().backward()
    optimizer.step(); optimizer.zero_grad(); step += 1
    if dist.get_rank() == 0 and step % 10 == 0:
        torch.save({"step": step}, path + ".new"); os.replace(path + ".new", path)
    out.write(json.dumps([time.time(), os.environ.get("TORCHELASTIC_RESTART_COUNT")]) + "\\n"); out.flush()
    time.sleep(0.005)
"""


def loop(tr: trek.Traveler, folder: str, pause_s: float) -> None:
    """Train until the file `stop` is there, writing down when steps are done."""
    x, y = torch.randn(4096, 64), torch.randint(8, (4096,))
    model = tr.add_model(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    data = tr.add_loader((x, y), global_batch_size=48, shuffle=True)
    with (Path(folder) / f"{os.getpid()}.jsonl").open("a") as out:
        for _ in tr.epochs(1_000_000):
            for inputs, labels in tr.train(data):
                tr.backward(F.cross_entropy(model(inputs), labels))
                if tr.step(optimizer):
                    out.write(json.dumps([time.time(), tr.world.generation]) + "\n")
                    out.flush()
                if (Path(folder) / "stop").exists():
                    tr.stop.request("user")
                time.sleep(pause_s)


def timed_loop(tr: trek.Traveler, num_batches: int) -> float:
    """Seconds per step of a small CNN, after a warm-up."""
    x, y = torch.randn(2048, 1, 28, 28), torch.randint(10, (2048,))
    model = tr.add_model(nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 24 * 24, 10)))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    data = tr.add_loader((x, y), global_batch_size=128, shuffle=True)
    started, count = 0.0, 0
    for _ in tr.epochs(1_000_000):
        for inputs, labels in tr.train(data):
            tr.backward(F.cross_entropy(model(inputs), labels))
            tr.step(optimizer)
            if tr.position.batches == 20 and not started:
                started, count = time.perf_counter(), tr.position.batches
            if tr.position.batches >= num_batches:
                return (time.perf_counter() - started) / (tr.position.batches - count)
    raise AssertionError("the loop has no end")


def steps(folder: Path) -> dict[int, list[tuple[float, Any]]]:
    """When each process completed its steps, and in which generation."""
    found: dict[int, list[tuple[float, Any]]] = defaultdict(list)
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            at, generation = json.loads(line)
            found[int(path.stem)].append((at, generation))
    return found


def stalls(folder: Path, kills: list[float]) -> list[float]:
    """After each kill: until anybody completed a step again that needed a new group."""
    times = sorted(at for of_process in steps(folder).values() for at, _ in of_process)
    found = []
    for killed in kills:
        after = [at for at in times if at > killed]
        # Steps that were under way when the worker died may still end; the stall is the longest pause that follows.
        window = [killed, *[at for at in after if at < killed + 30.0][:400]]
        found.append(max((b - a for a, b in itertools.pairwise(window)), default=float("nan")))
    return found


def campaign(folder: Path, process: subprocess.Popen[Any], num_kills: int) -> list[float]:
    """Kill one of the living workers every few seconds; when that was."""
    kills: list[float] = []
    while len(kills) < num_kills and process.poll() is None:
        time.sleep(KILL_EVERY_S)
        now = time.time()
        active = [pid for pid, done in steps(folder).items() if done and now - done[-1][0] < 0.5]
        if len(active) == WORKERS:
            os.kill(active[len(kills) % WORKERS], signal.SIGKILL)
            kills.append(time.time())
    (folder / "stop").touch()
    return kills


def run_trek(num_kills: int) -> list[float]:
    """The stalls of an elastic job."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, __file__, "--loop", name]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kills = campaign(Path(name), process, num_kills)
        process.wait(timeout=120)
        return stalls(Path(name), kills)


def run_torchrun(num_kills: int) -> list[float]:
    """The stalls of torchrun with as many restarts as it takes."""
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "train.py"
        script.write_text(TORCHRUN)
        options = [f"--nproc-per-node={WORKERS}", "--max-restarts=1000", "--monitor-interval=0.1", "--standalone"]
        command = [sys.executable, "-m", "torch.distributed.run", *options, str(script), name]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kills = campaign(Path(name), process, num_kills)
        process.wait(timeout=120)
        return stalls(Path(name), kills)


def told(name: str, values: list[float]) -> str:
    """Median and worst of some stalls."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"{name:>10}: median {statistics.median(values):.3f} s, p99 {p99:.3f} s ({len(values)} kills)"


def main() -> None:
    """Print the stalls and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loop:
        trek.run(loop, args.loop, 0.005, workers=(1, WORKERS), show_progress=False)
        return
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, {WORKERS} workers on gloo")
    ours, theirs = run_trek(args.kills), run_torchrun(max(args.kills // 4, 3))
    print(told("trek", ours))
    print(told("torchrun", theirs))
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(3):
        for name, given in {
            "ddp": {"workers": 2},
            "fast": {"workers": (2, 2)},
            "exact": {"workers": (2, 2), "elastic": "exact"},
        }.items():
            times[name].append(trek.run(timed_loop, 300, show_progress=False, **given))
    best = {name: min(values) for name, values in times.items()}
    print(f"step: elastic / ddp {best['fast'] / best['ddp']:.3f}, exact / fast {best['exact'] / best['fast']:.3f}")


if __name__ == "__main__":
    main()
