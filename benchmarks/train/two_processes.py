"""Two processes on gloo: Trek compared with hand-written torch DDP under torchrun, and the time to the first step.

    python benchmarks/train/two_processes.py [--rows 20000] [--repeats 3] [--model mlp|cnn]

Each contender is a script in new processes, one thread per process, with a global batch of 128. The best time counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORKERS = 2


def hand_ddp(rows: int, kind: str, out: str) -> None:
    """The loop of torch's tutorials; run under torchrun."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from one_process import BATCH, make_data, make_model
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = make_data(rows)
    sampler: DistributedSampler[Any] = DistributedSampler(data)
    model = DistributedDataParallel(make_model(kind))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first = 0.0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        start = time.perf_counter()
        for x, y in DataLoader(data, BATCH, sampler=sampler):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            first = first or time.time()
        seconds = time.perf_counter() - start
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps({"seconds": seconds, "first_step": first}))
    dist.destroy_process_group()


def trek_fit(rows: int, kind: str, out: str) -> None:
    """The same as a Trial."""
    from one_process import BATCH, BenchTrial, make_data

    import trek

    class TimedTrial(BenchTrial):
        """Builds its data in every process, and records its times on the leader."""

        def build_training_data_loader(self) -> Any:
            import torch

            torch.set_num_threads(1)
            return trek.DataLoader(make_data(rows), BATCH, shuffle=True)

        def build_callbacks(self) -> dict[str, Any]:
            from one_process import Clock

            class RecordingClock(Clock):
                def on_training_epoch_end(self, epoch_idx: int) -> None:
                    super().on_training_epoch_end(epoch_idx)
                    if epoch_idx == 1 and trek.World.from_env().is_leader:
                        times = {"seconds": self.seconds, "first_step": TimedTrial.first}
                        Path(out).write_text(json.dumps(times))

            return {"clock": RecordingClock()}

        first = 0.0

        def train_batch(self, batch: Any, model: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            if batch_idx == 1:
                TimedTrial.first = time.time()
            return super().train_batch(batch, model, epoch_idx, batch_idx)

    trek.fit(TimedTrial, hparams={"kind": kind}, max_length=trek.epochs(2), workers=WORKERS, show_progress=False)


def trek_loop(rows: int, kind: str, out: str) -> None:
    """The same as an explicit loop; run under `trek launch`."""
    import torch
    import torch.nn.functional as F
    from one_process import BATCH, make_data, make_model

    import trek

    torch.set_num_threads(1)
    first = 0.0
    with trek.Traveler(show_progress=False) as tr:
        model = tr.add_model(make_model(kind))
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.01))
        data = tr.add_loader(make_data(rows), batch_size=BATCH, shuffle=True)
        for _ in tr.epochs(2):
            start = time.perf_counter()
            for x, y in tr.train(data):
                loss = F.cross_entropy(model(x), y)
                tr.backward(loss)
                tr.step(optimizer)
                tr.log(loss=loss)
                first = first or time.time()
            seconds = time.perf_counter() - start
        if tr.world.is_leader:
            Path(out).write_text(json.dumps({"seconds": seconds, "first_step": first}))


CONTENDERS = {
    "torch DDP under torchrun": (
        hand_ddp,
        ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORKERS}"],
    ),
    "Trek, explicit loop under trek launch": (trek_loop, ["-m", "trek", "launch", "--workers", str(WORKERS)]),
    "Trek Trial through trek.fit": (trek_fit, []),
}


def run(contender: str, args: argparse.Namespace) -> dict[str, float]:
    """Start one contender; returns the seconds of its epoch, and from the start to the first step."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "out.json")
        script = [__file__, "--contender", contender, "--rows", str(args.rows), "--model", args.model, "--out", out]
        launcher = CONTENDERS[contender][1]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TREK_HOME": folder}
        start = time.time()
        subprocess.run([sys.executable, *launcher, *script], check=True, env=environment)
        times = json.loads(Path(out).read_text())
    return {"seconds": times["seconds"], "first_step": times["first_step"] - start}


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", choices=["mlp", "cnn"], default="mlp")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    if args.contender:
        CONTENDERS[args.contender][0](args.rows, args.model, args.out)
        return
    results: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(args.repeats):
        for name, runs in results.items():
            runs.append(run(name, args))
    best = {name: {key: min(r[key] for r in runs) for key in runs[0]} for name, runs in results.items()}
    print(f"{args.model}, {args.rows} rows, {WORKERS} processes, gloo, best of {args.repeats}")
    print(f"{'':40}{'samples/s':>10}{'of torchrun':>13}{'s to first step':>17}")
    for name, row in best.items():
        ratio = best["torch DDP under torchrun"]["seconds"] / row["seconds"]
        print(f"{name:40}{args.rows / row['seconds']:10.0f}{ratio:13.2f}{row['first_step']:17.2f}")


if __name__ == "__main__":
    main()
