"""A script of Determined's Core API: a loop of its own that reports, saves, resumes and can be preempted."""

import json
import pathlib

import trek.compat.determined as det
from trek.compat.determined import core


def main(core_context: core.Context, latest_checkpoint: str, rate: float) -> None:
    x, start = 0.0, 0
    if latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(latest_checkpoint) as path:
            state = json.loads((pathlib.Path(path) / "state.json").read_text())
            x, start = state["x"], state["steps"]

    for op in core_context.searcher.operations():
        for step in range(start, op.length):
            x -= rate * 2 * (x - 3)
            steps_completed = step + 1
            if steps_completed % 10 == 0:
                core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"x": x})
                op.report_progress(steps_completed)

                checkpoint_metadata = {"steps_completed": steps_completed}
                with core_context.checkpoint.store_path(checkpoint_metadata) as (path, uuid):
                    (pathlib.Path(path) / "state.json").write_text(json.dumps({"x": x, "steps": steps_completed}))

                if core_context.preempt.should_preempt():
                    return
        loss = (x - 3) ** 2
        core_context.train.report_validation_metrics(steps_completed=op.length, metrics={"loss": loss})
        op.report_completed(loss)


if __name__ == "__main__":
    info = det.get_cluster_info()
    latest_checkpoint = info.latest_checkpoint if info else None
    rate = info.trial.hparams["rate"] if info else 0.1
    with core.init() as core_context:
        main(core_context, latest_checkpoint, rate)
