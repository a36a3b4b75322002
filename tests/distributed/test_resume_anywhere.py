"""Several processes resume from the checkpoint of any batch, to the bit; many runs in one gang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trek
from trek.testing.resuming import ResumedTrial, differences, saved_state
from trek.train.session import train_trial
from trek.train.settings import TrainSettings


def resume_everywhere(tr: trek.Traveler, folder: str, configs: list[dict[str, Any]]) -> list[str]:
    """What differed from the run that never stopped, in any of `configs`."""
    found: list[str] = []
    for number, config in enumerate(configs):
        hparams, settings = dict(config["hparams"]), dict(config["settings"])
        place = Path(folder) / f"{tr.settings.strategy}-{number}"
        whole, rows = train(tr, place / "whole", hparams, settings, checkpoint_period=trek.batches(1), keep_last=99)
        every = config.get("every", 4)
        for saved in sorted((place / "whole").iterdir())[::every]:
            done = trek.Checkpoint(saved).batches
            ended, resumed_rows = train(tr, place / saved.name, hparams, settings, resume=saved)
            if resumed_rows != [one[done:] for one in rows]:
                found.append(f"{config}: rows after batch {done}")
            if tr.world.is_leader:
                unlike = differences(saved_state(ended), saved_state(whole))
                found += [f"{config}: {path} after batch {done}" for path in list(unlike)[:3]]
            tr.barrier()
    return found


def train(
    tr: trek.Traveler,
    place: Path,
    hparams: dict[str, Any],
    settings: dict[str, Any],
    *,
    resume: Any = None,
    **more: Any,
) -> tuple[Any, list[list[list[int]]]]:
    """Train to the end; the last checkpoint on the leader, and the rows of every batch by rank."""
    ResumedTrial.rows = []
    outcome = train_trial(
        ResumedTrial,
        hparams={"global_batch_size": 4, **hparams},
        settings=TrainSettings.of(
            None,
            max_length=trek.epochs(2),
            validation_period=trek.batches(5),
            report_period=3,
            checkpoint_policy="none",
            show_progress=False,
            strategy=tr.settings.strategy,
            **{**settings, **more},
        ),
        world=tr.world,
        checkpoint_dir=place,
        resume=resume,
    )
    return outcome.checkpoint, tr.strategy.gather(ResumedTrial.rows)


CONFIGS: list[dict[str, Any]] = [
    {"hparams": {"data": "trek_shuffled", "scheduler": "batch", "adam": True}, "settings": {}},
    {"hparams": {"data": "numpy", "scheduler": "one_cycle"}, "settings": {"accumulate": 2}},
    {"hparams": {"data": "in_place"}, "settings": {}},
    {"hparams": {"data": "batch_sampler", "scheduler": "epoch"}, "settings": {"accumulate": 3}},
    {"hparams": {"data": "own_noise", "scheduler": "cosine"}, "settings": {"accumulate": 3}, "every": 2},
    {"hparams": {"data": "plain"}, "settings": {}},
    {"hparams": {"data": "stream"}, "settings": {"accumulate": 3}, "every": 2},
    {"hparams": {"data": "own_stream"}, "settings": {"accumulate": 2}},
]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_processes_resumed_after_any_batch_go_on_as_if_they_had_never_stopped(strategy: str, tmp_path: Path) -> None:
    configs = CONFIGS if strategy == "ddp" else [CONFIGS[0], CONFIGS[4], CONFIGS[6]]
    found = trek.run(resume_everywhere, str(tmp_path), configs, workers=2, strategy=strategy, show_progress=False)
    assert found == []
