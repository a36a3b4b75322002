"""RunPlan: which steps a run is about, and how each is treated. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trek.errors import InputError
from trek.flow.flow import Flow
from trek.flow.graph import MapWork, Step, descendants, input_ancestors


@dataclass(frozen=True)
class RunPlan:
    """Which steps a run is about, and how each is treated."""

    steps: Sequence[Step]
    forced: frozenset[Step] = frozenset()
    must_be_kept: frozenset[Step] = frozenset()
    """Steps that may not run if their results can be kept, only give what they gave before."""
    parallel: int = 1


def make_plan(flow: Flow, *, parallel: int, force: bool, from_step: str | None, only: str | None) -> RunPlan:
    """Which steps are run, which must be, and which may not."""
    if not flow.steps:
        raise InputError(f"flow {flow.name!r} has no steps. Add some with flow.step(function, …).")
    if parallel < 1:
        raise InputError(f"parallel must be at least 1, got {parallel}.")
    if from_step is not None and only is not None:
        raise InputError("--from and --only exclude each other. Leave one out.")
    if only is not None:
        chosen = flow.find(only)
        needed = input_ancestors(chosen)
        steps = [step for step in flow.steps if step in needed]
        return RunPlan(steps, frozenset({chosen}), frozenset(needed - {chosen}), parallel)
    forced: set[Step] = set(flow.steps) if force else set()
    if from_step is not None:
        forced |= descendants([flow.find(from_step)], among=flow.steps)
    return RunPlan(flow.steps, frozenset(forced), parallel=parallel)


def share_threads(plan: RunPlan, *, num_cores: int) -> dict[Step, int]:
    """Cores of each step: those of one layer, which may run side by side, share the cores by their processes.

    Told by the plan and not by what happens to run: with another number of threads, sums would come out otherwise.
    """
    layers: dict[Step, int] = {}
    widths: Counter[int] = Counter()
    for step in plan.steps:
        layers[step] = 1 + max((layers[up] for up in step.upstream() if up in layers), default=-1)
        widths[layers[step]] += plan.parallel if isinstance(step.work, MapWork) else step.settings.num_processes
    each = {layer: max(num_cores // min(width, plan.parallel), 1) for layer, width in widths.items()}
    return {step: each[layer] * step.settings.workers for step, layer in layers.items()}
