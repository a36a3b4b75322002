"""Determined's Core API outside of a trial."""

from __future__ import annotations

from pathlib import Path

import pytest

import trek.compat.determined as det
from trek.compat.determined import core
from trek.errors import InputError


def test_a_script_reports_saves_and_restores_without_a_master(tmp_path: Path) -> None:
    assert det.get_cluster_info() is None
    with core.init(checkpoint_storage=tmp_path / "run") as context:
        (op,) = context.searcher.operations()
        assert (op.length, context.searcher.get_configured_units(), context.info) == (1, None, None)
        context.train.report_training_metrics(steps_completed=1, metrics={"loss": 0.5})
        context.train.report_validation_metrics(steps_completed=1, metrics={"error": 0.1})
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
            (path / "weights").write_bytes(b"abc")
        op.report_completed(0.1)
        assert not context.preempt.should_preempt()
        with context.checkpoint.restore_path(uuid) as restored:
            assert (restored / "weights").read_bytes() == b"abc"
        context.checkpoint.download(uuid, tmp_path / "copy")
        assert context.checkpoint.get_metadata(uuid) == {"steps_completed": 1}
    assert (tmp_path / "copy" / "weights").read_bytes() == b"abc"
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_files_may_be_selected_when_they_are_saved_and_restored(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    for name in ("weights", "deep/weights", "deep/notes"):
        (source / name).write_text(name)
    with core.init(checkpoint_storage=tmp_path / "run") as context:
        uuid = context.checkpoint.upload(source, {"steps_completed": 1}, selector=lambda name: name.endswith("weights"))
        with context.checkpoint.restore_path(uuid) as every:
            assert (every / "deep" / "weights").read_text() == "deep/weights"
            assert not (every / "deep" / "notes").exists()
        context.checkpoint.download(uuid, tmp_path / "copy", selector=lambda name: name.startswith("deep/"))
    assert [path.name for path in (tmp_path / "copy").rglob("*") if path.is_file()] == ["weights"]
    assert not (tmp_path / "copy" / "weights").exists()


def test_values_are_passed_within_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    context = core.DistributedContext(rank=3, size=4, local_rank=1, local_size=2, cross_rank=1, chief_ip="10.0.0.1")
    monkeypatch.setattr(context, "allgather", lambda stuff: ["a", "b", "c", stuff])
    assert (context.get_local_rank(), context.get_num_agents(), context.cross_rank) == (1, 2, 1)
    assert context.allgather_local("d") == ["c", "d"]
    assert context.gather_local("d") is None
    assert context.broadcast_local("d") == "c"
    with pytest.raises(
        InputError, match="rank 3 of 4 with 2 processes per machine is on machine 1 of 2, got cross_rank 0"
    ):
        core.DistributedContext(rank=3, size=4, local_rank=1, local_size=2, cross_rank=0)


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with core.init(checkpoint_storage=tmp_path) as context:
        with pytest.raises(InputError, match="must have a whole number 'steps_completed'"):
            context.checkpoint.upload(tmp_path, {})
        (op,) = context.searcher.operations()
        op.report_completed(1.0)
        with pytest.raises(InputError, match="called twice"):
            op.report_completed(1.0)
    with pytest.raises(InputError, match="does not know 'masters'"):
        core.init(masters=1)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29999")
    with pytest.raises(InputError, match="runs as 2 processes"):
        core.init()
