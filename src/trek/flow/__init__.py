"""Flow: a graph of steps from data to model to service, run in order, in parallel, and only where something changed.

    import trek

    flow = trek.Flow("mnist")
    lr = flow.param("lr", 0.1, help="learning rate")

    raw = flow.step(download, retries=3, timeout_s=600)       # a plain function; its result can be passed on
    train, test = flow.step(prepare, raw, outputs=2)          # it returns a tuple of two
    model = flow.step(fit, train, test, lr=lr)                # keyword arguments go to the function
    flow.script("finetune.py", "--model", model.path, workers=2)            # any script as N processes
    flow.command("evaluate", ["python", "evaluate.py", model.path], after=[model])
    best = flow.experiment("adaptive.yaml", ".")              # a whole experiment; its best checkpoint
    url = flow.service("web", ["python", "serve.py", best.path], ready=8080)  # running while later steps use it
    flow.step(check, flow.map(ask, flow.step(questions), url=url))          # one call for each question

    if __name__ == "__main__":
        run = flow.run(params={"lr": 0.2})                    # or: trek flow run flow.py --param lr=0.2
        print(run[model], run.path(model))

A step function is called in another process with the values of its arguments: what an earlier step returned, a
parameter, or anything written there. It may return plain data (None, numbers, text), bytes, a `Path` to a file or
folder, a NumPy array, a torch tensor, a data frame of pandas or Polars, an Arrow or Trek `Table`, a `Checkpoint`, or
lists, tuples, dicts, dataclasses and named tuples of these. It writes files to `trek.flow.scratch()`, a folder that is
removed with the attempt; a returned `Path` in it is moved to where later steps find it, completely or not at all. A
`Path` elsewhere stays where it is, and the step runs again when its contents have changed.

A step is not run again while its code, the project functions it calls, its arguments and the contents of its inputs
are the same and its outputs are still as they were. Work runs in processes of
`trek.engines`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.lazy import lazy_names

if TYPE_CHECKING:
    from trek.flow.flow import Flow
    from trek.flow.graph import OUTPUT_DIR, Output
    from trek.flow.parameters import Param
    from trek.flow.performing import scratch
    from trek.flow.run import Run

_HOMES = {
    "OUTPUT_DIR": "trek.flow.graph",
    "Flow": "trek.flow.flow",
    "Output": "trek.flow.graph",
    "Param": "trek.flow.parameters",
    "Run": "trek.flow.run",
    "scratch": "trek.flow.performing",
}

__all__ = ["OUTPUT_DIR", "Flow", "Output", "Param", "Run", "scratch"]


__getattr__ = lazy_names("trek.flow", _HOMES)
