"""Arguments have the names and the places that they have in Determined 0.21.0."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from trek.compat.determined import core, pytorch
from trek.compat.determined.experimental import client

CONTEXT, TRAINER = pytorch.PyTorchTrialContext, pytorch.Trainer


@pytest.mark.parametrize(
    ("method", "names"),
    [
        (CONTEXT.wrap_model, "model"),
        (
            CONTEXT.wrap_optimizer,
            "optimizer backward_passes_per_step fp16_compression average_aggregated_gradients",
        ),
        (CONTEXT.wrap_lr_scheduler, "lr_scheduler step_mode frequency"),
        (CONTEXT.wrap_scaler, "scaler"),
        (CONTEXT.wrap_reducer, "reducer name for_training for_validation"),
        (CONTEXT.to_device, "data"),
        (CONTEXT.backward, "loss gradient retain_graph create_graph"),
        (CONTEXT.step_optimizer, "optimizer clip_grads auto_zero_grads scaler"),
        (CONTEXT.get_hparam, "name"),
        (CONTEXT.set_stop_requested, "stop_requested"),
        (TRAINER.__init__, "trial context"),
        (TRAINER.configure_profiler, "sync_timings enabled begin_on_batch end_after_batch"),
        (
            TRAINER.fit,
            "checkpoint_period validation_period max_length reporting_period checkpoint_policy latest_checkpoint "
            "step_zero_validation test_mode",
        ),
        (pytorch.LRScheduler.__init__, "scheduler step_mode frequency"),
        (core.CheckpointContext.upload, "ckpt_dir metadata"),
        (core.CheckpointContext.store_path, "metadata"),
        (core.CheckpointContext.download, "storage_id ckpt_dir"),
        (core.CheckpointContext.restore_path, "storage_id"),
        (core.TrainContext.report_training_metrics, "steps_completed metrics batch_metrics"),
        (core.TrainContext.report_validation_metrics, "steps_completed metrics"),
        (core.PreemptContext.should_preempt, "auto_ack"),
        (core.SearcherContext.operations, "searcher_mode auto_ack"),
        (client.Trial.select_checkpoint, "latest best uuid sort_by smaller_is_better"),
        (client.Trial.top_checkpoint, "sort_by smaller_is_better"),
        (client.Experiment.top_checkpoint, "sort_by smaller_is_better"),
        (client.Experiment.top_n_checkpoints, "limit sort_by smaller_is_better"),
        (client.create_experiment, "config model_dir includes"),
        (client.login, "master user password"),
        (client.get_trial, "trial_id"),
        (client.get_checkpoint, "uuid"),
    ],
)
def test_arguments_are_those_of_determined(method: Callable[..., Any], names: str) -> None:
    parameters = [one for one in inspect.signature(method).parameters.values() if one.name != "self"]
    by_place = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert by_place[: len(names.split())] == names.split()


@pytest.mark.parametrize("method", ["upload", "download", "restore_path"])
def test_checkpoints_take_a_selector(method: str) -> None:
    assert "selector" in inspect.signature(getattr(core.CheckpointContext, method)).parameters


@pytest.mark.parametrize(
    "kind", [client.Checkpoint, client.Trial, client.Experiment, client.Determined, core.DistributedContext]
)
def test_nothing_is_accepted_and_ignored(kind: type) -> None:
    for name, method in vars(kind).items():
        if inspect.isfunction(method):
            kinds = [one.kind for one in inspect.signature(method).parameters.values()]
            assert inspect.Parameter.VAR_KEYWORD not in kinds, name
