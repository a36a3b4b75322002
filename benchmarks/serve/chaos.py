"""Requests that fail while models are loaded again and workers are killed: none should.

    python benchmarks/serve/chaos.py [--times 20]

Eight clients ask all the time; a worker is killed with SIGKILL and the model is loaded again, in turns.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
from requests_per_second import BODY, HERE, train

from trek.serve import Server


def ask(url: str, stopped: threading.Event, found: Counter[int]) -> None:
    """One client."""
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        while not stopped.is_set():
            found[client.post("/predict", content=BODY).status_code] += 1


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    args = parser.parse_args()
    stopped, found = threading.Event(), Counter[int]()
    with tempfile.TemporaryDirectory() as name:
        checkpoint, _ = train(Path(name))
        with Server(checkpoint, code=HERE, port=0, workers=2, threads=1) as server:
            clients = [threading.Thread(target=ask, args=(server.url, stopped, found)) for _ in range(8)]
            for client in clients:
                client.start()
            for _ in range(args.times):
                killed = server.worker_pids[0]
                os.kill(killed, signal.SIGKILL)
                server.reload()
                while len(server.worker_pids) < 2:
                    time.sleep(0.05)
            stopped.set()
            for client in clients:
                client.join()
    print(f"{args.times} kills and reloads: answers by status {dict(found)}")


if __name__ == "__main__":
    main()
