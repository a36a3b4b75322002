"""A script of Determined's Core API on several processes: all of them train one model, and save it together."""

import json
import pathlib

import torch
import torch.distributed as dist

import trek.compat.determined as det
from trek.compat.determined import core


def load_state(core_context: core.Context, latest_checkpoint: str | None, rank: int) -> tuple[float, int]:
    """The weight and the number of steps that this rank saved."""
    if latest_checkpoint is None:
        return 0.0, 0
    with core_context.checkpoint.restore_path(latest_checkpoint) as path:
        state = json.loads((pathlib.Path(path) / f"rank-{rank}.json").read_text())
    print(f"rank {rank} continues after step {state['steps']}", flush=True)
    return state["x"], state["steps"]


def save_state(core_context: core.Context, x: float, steps: int, rank: int) -> None:
    """Every rank writes a file of its own to one checkpoint."""
    with core_context.checkpoint.store_path({"steps_completed": steps}, shard=True) as (path, _):
        (pathlib.Path(path) / f"rank-{rank}.json").write_text(json.dumps({"x": x, "steps": steps}))


def main(core_context: core.Context, latest_checkpoint: str | None, hparams: dict) -> None:
    rank, size = core_context.distributed.get_rank(), core_context.distributed.get_size()
    x, start = load_state(core_context, latest_checkpoint, rank)
    for op in core_context.searcher.operations():
        for step in range(start, op.length):
            gradient = torch.tensor(2 * (x - 2 * rank))  # the ranks pull to 0, 2, …, and meet in the middle
            dist.all_reduce(gradient)
            x -= hparams["rate"] * float(gradient) / size
            if (step + 1) % hparams["period"] == 0:
                if rank == 0:
                    core_context.train.report_training_metrics(steps_completed=step + 1, metrics={"x": x})
                    op.report_progress(step + 1)
                save_state(core_context, x, step + 1, rank)
                if core_context.preempt.should_preempt():
                    return
        loss = abs(x - (size - 1))
        if rank == 0:
            core_context.train.report_validation_metrics(steps_completed=op.length, metrics={"loss": loss})
            op.report_completed(loss)


if __name__ == "__main__":
    info = det.get_cluster_info()
    assert info is not None, "this script belongs into an experiment"
    dist.init_process_group("gloo")
    try:
        distributed = core.DistributedContext.from_torch_distributed()
        with core.init(distributed=distributed) as core_context:
            main(core_context, info.latest_checkpoint, info.trial.hparams)
    finally:
        dist.destroy_process_group()
