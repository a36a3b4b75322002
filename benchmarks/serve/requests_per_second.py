"""Requests a second and their times: Trek beside bare FastAPI, LitServe and TorchServe.

    python benchmarks/serve/requests_per_second.py [--seconds 3] [--rounds 3] [--only trek fastapi]

A small convolutional network, an image of 28 by 28 as 6.2 KB of JSON, one worker with one thread of torch. All servers
run side by side, and rounds alternate between them, so that a busy machine slows all alike; figures are medians of
the rounds. Clients are threads of one process with connections that stay open. Memory is the private and shared part
(PSS) of all processes of a server; CPU is what they use for a request, which a busy machine changes least.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import psutil

HERE = Path(__file__).parent
BODY = json.dumps(
    {"input_0": [[round(float(v), 4) for v in row] for row in np.random.default_rng(0).random((28, 28))]}
).encode()
CLIENTS = (1, 16)


@dataclass
class Peer:
    """A running server."""

    name: str
    port: int
    path: str
    process: subprocess.Popen[bytes]
    rates: dict[int, list[float]] = field(default_factory=lambda: {c: [] for c in CLIENTS})
    times: dict[int, list[float]] = field(default_factory=lambda: {c: [] for c in CLIENTS})

    cpu_s: dict[int, float] = field(default_factory=lambda: dict.fromkeys(CLIENTS, 0.0))

    def cpu_seconds(self) -> float:
        """That its processes have used."""
        own = psutil.Process(self.process.pid)
        return sum(sum(one.cpu_times()[:2]) for one in [own, *own.children(recursive=True)])

    def memory_mb(self) -> float:
        """Of all its processes."""
        own = psutil.Process(self.process.pid)
        return sum(one.memory_full_info().pss for one in [own, *own.children(recursive=True)]) / 1e6


def ask(peer: Peer, seconds: float, times: list[float], failures: list[str]) -> None:
    """One client."""
    connection = HTTPConnection("127.0.0.1", peer.port, timeout=30)
    deadline = time.perf_counter() + seconds
    while (began := time.perf_counter()) < deadline:
        connection.request("POST", peer.path, BODY, {"content-type": "application/json"})
        found = connection.getresponse()
        content = found.read()
        if found.status != 200:
            failures.append(f"{found.status} {content[:80]!r}")
        times.append(time.perf_counter() - began)
    connection.close()


def measure(peer: Peer, clients: int, seconds: float) -> None:
    """One round."""
    times: list[float] = []
    failures: list[str] = []
    threads = [threading.Thread(target=ask, args=(peer, seconds, times, failures)) for _ in range(clients)]
    began, used_s = time.perf_counter(), peer.cpu_seconds()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures, f"{peer.name}: {failures[:3]}"
    peer.rates[clients].append(len(times) / (time.perf_counter() - began))
    peer.times[clients] += times
    peer.cpu_s[clients] += peer.cpu_seconds() - used_s


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def wait_for(peer: Peer) -> None:
    """Until it answers."""
    for _ in range(600):
        with contextlib.suppress(OSError):
            failures: list[str] = []
            ask(peer, 0.05, [], failures)
            if not failures:
                return
        time.sleep(0.2)
    raise SystemExit(f"{peer.name} does not answer")


def train(folder: Path) -> tuple[str, str]:
    """A checkpoint of the network, and its archive."""
    sys.path.insert(0, str(HERE))
    from model_def import Images

    import trek

    result = trek.fit(Images, max_length=trek.batches(2), checkpoint_dir=folder / "run", show_progress=False)
    archive = trek.serve.archive(result.checkpoint.path, folder / "images.mar", code=HERE)
    return str(result.checkpoint.path), str(archive)


def commands(folder: Path, checkpoint: str, batch: int) -> dict[str, Callable[[int], tuple[list[str], str]]]:
    """How each server is started on a port, and the path of its route."""
    python = sys.executable
    bin_folder = Path(python).parent

    def torchserve(port: int) -> tuple[list[str], str]:
        ports = [port, *(free_port() for _ in range(4))]
        names = ["inference_address", "management_address", "metrics_address"]
        lines = [f"{name}=http://127.0.0.1:{one}" for name, one in zip(names, ports, strict=False)]
        lines += [f"grpc_inference_port={ports[3]}", f"grpc_management_port={ports[4]}", "default_workers_per_model=1"]
        (folder / "config.properties").write_text("\n".join([*lines, ""]))
        words = ["torchserve", "--foreground", "--ncs", "--disable-token-auth", "--model-store", str(folder)]
        words += ["--models", "images.mar", "--ts-config", str(folder / "config.properties")]
        return [str(bin_folder / words[0]), *words[1:]], "/predictions/images"

    trek = [python, "-m", "trek", "serve", checkpoint, "--code", str(HERE), "--threads", "1", "--batch", str(batch)]
    return {
        "trek": lambda port: ([*trek, "--port", str(port)], "/predict"),
        "fastapi": lambda port: ([python, str(HERE / "peers/fastapi_server.py"), str(port)], "/predict"),
        "litserve": lambda port: ([python, str(HERE / "peers/litserve_server.py"), str(port), "1"], "/predict"),
        "litserve batched": lambda port: (
            [python, str(HERE / "peers/litserve_server.py"), str(port), str(batch)],
            "/predict",
        ),
        "torchserve": torchserve,
    }


@contextlib.contextmanager
def running(folder: Path, chosen: list[str], batch: int) -> Iterator[list[Peer]]:
    """All servers."""
    checkpoint, _ = train(folder)
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "LOG_LOCATION": str(folder), "METRICS_LOCATION": str(folder)}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    peers: list[Peer] = []
    try:
        for name, command in commands(folder, checkpoint, batch).items():
            if name in chosen:
                port = free_port()
                words, path = command(port)
                log = (folder / f"{name}.txt").open("wb")
                process = subprocess.Popen(
                    words, env=environ, cwd=folder, stdout=log, stderr=log, start_new_session=True
                )
                peers.append(Peer(name, port, path, process))
        for peer in peers:
            wait_for(peer)
        yield peers
    finally:
        for peer in peers:
            os.killpg(peer.process.pid, signal.SIGTERM)
        for peer in peers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                peer.process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(peer.process.pid, signal.SIGKILL)


def show(peers: list[Peer]) -> None:
    """The table."""
    print(f"body {len(BODY):,} bytes")
    print(
        f"{'':18}"
        + "".join(f"{f'c={c} req/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}" for c in CLIENTS)
        + f"{'MB':>7}"
    )
    for peer in peers:
        line = f"{peer.name:18}"
        for clients in CLIENTS:
            ms = np.asarray(peer.times[clients]) * 1e3
            rate = statistics.median(peer.rates[clients])
            line += f"{rate:12.0f}{np.percentile(ms, 50):9.2f}{np.percentile(ms, 99):9.2f}"
            line += f"{peer.cpu_s[clients] / len(ms) * 1e3:9.2f}"
        print(f"{line}{peer.memory_mb():7.0f}")
    first = peers[0]
    for peer in peers[1:]:
        p50 = np.median(first.times[1]) / np.median(peer.times[1])
        rate = statistics.median(first.rates[16]) / statistics.median(peer.rates[16])
        p99 = np.percentile(first.times[16], 99) / np.percentile(peer.times[16], 99)
        print(f"{first.name} / {peer.name}: c=1 p50 {p50:.2f}, c=16 rate {rate:.2f}, c=16 p99 {p99:.2f}")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    everything = ["trek", "fastapi", "litserve", "litserve batched", "torchserve"]
    with tempfile.TemporaryDirectory() as name, running(Path(name), args.only or everything, args.batch) as peers:
        for peer in peers:
            measure(peer, 1, 1.0)  # warm
            peer.rates[1].clear()
            peer.times[1].clear()
            peer.cpu_s[1] = 0.0
        for _ in range(args.rounds):
            for clients in CLIENTS:
                for peer in peers:
                    measure(peer, clients, args.seconds)
        show(peers)


if __name__ == "__main__":
    main()
