"""Tables in shared memory: one copy for all processes, freed afterwards."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import trek
from trek.data import Handle, Table
from trek.data.execution.shm import shared_root
from trek.errors import DataUnavailable, InputError
from trek.world import World

_READER = """
import re, sys, torch, trek

def own():  # memory that no file stands behind: pages of a shared file are nobody's own, even with one reader left
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])

trek.data.open(sys.argv[1]).schema
before = own()
columns = trek.data.open(sys.argv[1]).to_torch()
total = int(columns["image"].sum(dtype=torch.int64))
print(total, own() - before)
"""


def table(num_rows: int = 1000) -> Table:
    return Table.of({"image": np.ones((num_rows, 32, 32), np.uint8), "label": np.arange(num_rows)}, num_partitions=3)


def files_of_this_process() -> list[Path]:
    return [path for path in shared_root().iterdir() if path.name.startswith(f"trek-{os.getpid()}-")]


def test_a_handle_opens_as_the_same_table() -> None:
    with table().share() as handle:
        opened = trek.data.open(handle)
        assert opened.num_rows == 1000
        assert opened.schema.equals(table().schema)
        assert opened.partition(4).to_numpy()["label"].tolist() == list(range(1000))


def test_tensors_of_a_handle_share_its_memory() -> None:
    with table().share() as handle:
        opened = handle.open()
        first, second = opened.to_torch()["image"], opened.to_torch()["image"]
        assert first.data_ptr() == second.data_ptr()


def test_a_handle_travels_as_text_and_as_a_pickle() -> None:
    with table().share() as handle:
        assert trek.data.open(str(handle)).num_rows == 1000
        assert pickle.loads(pickle.dumps(handle)) == handle
        assert len(pickle.dumps(handle)) < 1000
        assert Handle.parse(str(handle)) == handle


def test_half_a_handle_is_refused() -> None:
    with pytest.raises(InputError, match="is not a complete handle"):
        trek.data.open("trek-handle:{")


def test_processes_that_open_a_handle_share_one_copy() -> None:
    num_rows = 64 * 1024  # 64 MB
    with table(num_rows).share() as handle:
        readers = [
            subprocess.Popen([sys.executable, "-c", _READER, str(handle)], stdout=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        answers = [reader.communicate(timeout=240)[0].split() for reader in readers]
    assert [int(total) for total, _ in answers] == [num_rows * 1024] * 3
    assert all(int(grown) < handle.nbytes // 4 for _, grown in answers)


def test_closing_frees_the_memory_while_open_tables_stay_readable() -> None:
    handle = table().share()
    opened = handle.open().to_torch()
    assert files_of_this_process()
    handle.close()
    handle.close()
    assert not files_of_this_process()
    assert int(opened["label"].sum()) == 499500
    with pytest.raises(DataUnavailable, match="no longer exists"):
        handle.open()


def test_the_memory_goes_with_the_last_use_of_the_handle() -> None:
    handle = table().share()
    del handle
    gc.collect()
    assert not files_of_this_process()


def test_the_memory_goes_with_the_process_that_shared() -> None:
    code = """
        import numpy as np, trek
        handle = trek.data.Table.of({"x": np.arange(10)}).share()
        print(handle.path)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=240, check=True
    )
    assert not Path(done.stdout.strip()).exists()


def test_writing_to_a_shared_table_reaches_nobody_else() -> None:
    with table().share() as handle:
        handle.open().to_torch()["label"].zero_()
        assert int(handle.open().to_torch()["label"].sum()) == 499500


_SHUFFLER = """
import re, sys, torch, trek
from trek.world import World

def own():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])

rank = int(sys.argv[2])
world = World(rank=rank, size=3, local_rank=rank, local_size=3)
for _ in trek.data.open(sys.argv[1] + "/small").batches(256, shuffle=True, world=world):
    pass
before = own()
total = 0
for images, labels in trek.data.open(sys.argv[1] + "/large").batches(256, shuffle=True, world=world):
    total += int(labels.sum())
print(total, own() - before)
"""


def test_processes_that_shuffle_an_encoded_table_decode_it_once_and_share_the_rows(tmp_path: Path) -> None:
    table(1000).persist(tmp_path / "small")
    num_rows = 128 * 1024  # 128 MB, far less on disk
    table(num_rows).persist(tmp_path / "large")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _SHUFFLER, str(tmp_path), str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
        )
        for rank in range(3)
    ]
    said = [rank.communicate(timeout=240) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), said
    answers = [[int(word) for word in out.split()] for out, _ in said]
    assert sum(total for total, _ in answers) == num_rows * (num_rows - 1) // 2
    assert all(grown < 96 << 20 for _, grown in answers), answers
    assert sum("decoded once for all processes" in errors for _, errors in said) == 1


_MAPPER = """
import os, re, sys, time
import numpy as np
from pathlib import Path
from trek import DataLoader
from trek.data import Table, running_on
from trek.world import World

def own():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])

def widened(batch):
    with open(LOG, "a") as log:
        log.write(f"{len(batch['x'])}\\n")
    return {"x": batch["x"], "image": np.repeat(batch["x"][:, None], 512, axis=1)}

LOG = os.environ["MAPPED_ROWS_LOG"]
table = Table.of({"x": np.arange(1 << 14)}, num_partitions=8).map(widened)  # 64 MB
before = own()
with running_on(os.environ["MAPPED_ROWS_EXECUTOR"], num_workers=2):
    loader = DataLoader(table, 256, shuffle=True)
    loader.table
total = 0
for epoch in range(2):
    for batch in loader.bind(World.from_env(), seed=0).batches(epoch):
        total += int(batch.data[0].sum())
grown = own() - before
Path(sys.argv[1], str(os.getpid())).touch()
while len(os.listdir(sys.argv[1])) < 2:  # the other rank may not have begun
    time.sleep(0.05)
print(total, grown)
"""


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_ranks_of_a_job_compute_a_table_once_and_share_the_rows(tmp_path: Path, executor: str) -> None:
    (tmp_path / "ended").mkdir()
    world = World(size=2, local_size=2, secret="of this job, and long enough")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _MAPPER, str(tmp_path / "ended")],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **replace(world, rank=rank, local_rank=rank).environment(),
                "MAPPED_ROWS_LOG": str(tmp_path / "log"),
                "MAPPED_ROWS_EXECUTOR": executor,
                "ARROW_DEFAULT_MEMORY_POOL": "system",
            },
        )
        for rank in range(2)
    ]
    answers = [[int(word) for word in rank.communicate(timeout=240)[0].split()] for rank in ranks]
    num_rows = 1 << 14
    assert sum(total for total, _ in answers) == 2 * num_rows * (num_rows - 1) // 2
    assert sum(map(int, (tmp_path / "log").read_text().split())) == num_rows
    assert all(grown < 48 << 20 for _, grown in answers), answers


def test_the_memory_stays_while_a_table_of_it_is_used() -> None:
    opened = trek.data.open(table().share())
    assert opened.to_arrow().num_rows == 1000
