"""What steps of a flow hand over to each other: files, arrays and Tables, by disk or in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trek
from trek.errors import InputError, TrainingError
from trek.flow import scratch
from trek.testing.flow_steps import add, num_lines, one, run_flow


def test_files_made_in_scratch_are_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    def make(succeed: bool) -> Path:
        path = scratch() / "model.bin"
        path.write_text("half")
        if not succeed:
            raise RuntimeError("torn")
        path.write_text("whole")
        return path

    def read(path: Path) -> str:
        return f"{path.name}: {path.read_text()}"

    flow = trek.Flow("files")
    succeed = flow.param("succeed", False)
    text = flow.step(read, flow.step(make, succeed))
    with pytest.raises(TrainingError, match="torn"):
        run_flow(flow)
    store = Path(os.environ["TREK_HOME"]) / "flows" / "files"
    assert not list(store.rglob("model.bin"))
    assert run_flow(flow, params={"succeed": True})[text] == "model.bin: whole"


def test_arrays_arrive_as_mapped_views() -> None:
    def make() -> dict[str, np.ndarray]:
        return {"x": np.ones(10)}

    def kind(arrays: dict[str, np.ndarray]) -> tuple[str, float]:
        return type(arrays["x"]).__name__, float(arrays["x"].sum())

    flow = trek.Flow("arrays")
    out = flow.step(kind, flow.step(make))
    assert run_flow(flow)[out] == ("memmap", 10.0)


def test_hand_over_in_memory_gives_the_same_and_leaves_nothing() -> None:
    def make() -> np.ndarray:
        return np.arange(100)

    def use(array: np.ndarray) -> tuple[int, str]:
        return int(array.sum()), str(getattr(array, "filename", ""))

    flow = trek.Flow("memory")
    out = flow.step(use, flow.step(make), handover="memory")
    run = run_flow(flow)
    total, filename = run[out]
    assert total == 4950
    assert "/shm/" in filename
    assert not Path(filename).exists()
    assert not list(Path("/dev/shm").glob(f"trek-flow-{run.id}*"))
    assert not list((Path(os.environ["TREK_HOME"]) / "flows" / "memory").rglob("*.npy"))


def test_the_way_of_handing_over_may_be_a_parameter() -> None:
    flow = trek.Flow("chosen-handover")
    way = flow.param("handover", "disk")
    where = flow.step(lambda array: str(array.filename), flow.step(np.arange, 10), handover=way)
    assert "/shm/" in run_flow(flow, params={"handover": "memory"})[where]
    assert "/shm/" not in run_flow(flow)[where]
    with pytest.raises(InputError, match="'disk' or 'memory', got 'mail'"):
        run_flow(flow, params={"handover": "mail"})


def test_what_lasts_by_itself_is_kept_though_it_is_handed_over_in_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = trek.Flow("lasting")
    flow.step(add, flow.step(one, str(log)), b=flow.param("b", 1), handover="memory")
    assert run_flow(flow).states() == {"one": "done", "add": "done"}
    assert run_flow(flow, params={"b": 2}).states() == {"one": "cached", "add": "done"}
    assert num_lines(log) == 1


def test_tables_are_handed_over_either_way_with_the_same_rows() -> None:
    def make() -> Any:
        return trek.data.Table.of({"x": np.arange(100)}, num_partitions=2).map(lambda batch: {"x": batch["x"] * 2})

    def total(table: Any) -> tuple[int, str]:
        return int(table.to_numpy()["x"].sum()), table.explain()

    flow = trek.Flow("tables")
    way = flow.param("handover", "disk")
    out = flow.step(total, flow.step(make), handover=way)
    rows, plan = run_flow(flow, params={"handover": "memory"})[out]
    assert (rows, "shared memory" in plan) == (9900, True)
    rows, plan = run_flow(flow)[out]
    assert (rows, "shared memory" in plan) == (9900, False)


def test_what_is_handed_over_in_memory_is_not_taken_for_an_older_one() -> None:
    flow = trek.Flow("volatile")
    size = flow.param("size", 10)
    fresh = flow.step(lambda: np.frombuffer(os.urandom(16), dtype=np.uint8), cache=False)
    total = flow.step(lambda array: array.tolist(), fresh, handover="memory")
    kept = flow.step(lambda array: len(array), flow.step(np.arange, size), handover="memory", name="kept")
    first, second = run_flow(flow), run_flow(flow)
    assert first[total] != second[total]
    assert (second.states()["kept"], run_flow(flow, params={"size": 20})[kept]) == ("cached", 20)
