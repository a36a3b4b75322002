"""A table that is larger than a worker's memory passes through it: from servers to a checkpoint's file, and back."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from trek.ps import Client, Rule, TableSpec
from trek.ps.addresses import parse_address
from trek.ps.server import listen
from trek.ps.server_process import serve
from trek.ps.table_rows import TableRows

FORK = multiprocessing.get_context("fork")
SECRET = "the secret of this test's servers"
NUM_ROWS, DIM = 400_000, 64
RULE = Rule.named("Adam")


@pytest.fixture
def open_server() -> Iterator[Callable[[], str]]:
    processes = []

    def start() -> str:
        sockets = listen(("127.0.0.1", 0), secret=SECRET)
        address = f"127.0.0.1:{sockets[0].getsockname()[1]}"
        for one in sockets:
            one.close()
        settings = {"secret": SECRET, "folder": None}
        processes.append(FORK.Process(target=serve, args=(parse_address(address),), kwargs=settings))
        processes[-1].start()
        return address

    yield start
    for process in processes:
        process.kill()
        process.join()


def _own_memory() -> int:
    """Bytes that only this process has; what it maps of files can be given up."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def test_a_large_table_is_saved_and_loaded_without_being_in_memory(
    open_server: Callable[[], str], tmp_path: Path
) -> None:
    ids = torch.arange(NUM_ROWS)
    with Client([open_server()], secret=SECRET) as first, Client([open_server()], secret=SECRET) as second:
        for client in (first, second):
            client.push_model(tables=[TableSpec(name="large", dim=DIM)])
        for part in ids.split(20_000):
            first.push_gradients(rows={"large": (part, torch.randn(len(part), DIM))}, rule=RULE)
        table_bytes, before = 3 * NUM_ROWS * DIM * 4, _own_memory()  # with the two moments of Adam
        saved = first.export_state("large")
        save_file({"ids": saved.ids, "values": saved.values, **saved.slots}, tmp_path / "large.safetensors")
        assert _own_memory() - before < table_bytes / 2
        loaded = load_file(tmp_path / "large.safetensors")
        slots = {name: loaded[name] for name in saved.slots}
        second.put_rows("large", TableRows(loaded["ids"], loaded["values"], slots, saved.step), rule=RULE)
        assert _own_memory() - before < table_bytes / 2
        wanted = np.random.default_rng(0).choice(NUM_ROWS, 1000)
        gradients = torch.randn(1000, DIM)
        for client in (first, second):
            client.push_gradients(rows={"large": (wanted, gradients)}, rule=RULE)
        assert torch.equal(first.pull_rows("large", wanted), second.pull_rows("large", wanted))
