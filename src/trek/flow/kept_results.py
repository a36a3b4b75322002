"""KeptResults: whether a stored result may stand for a run of a step, and why it may or may not. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trek.errors import InputError
from trek.flow.artefacts import Stored
from trek.flow.flow_reader import FlowReader, StepRow
from trek.flow.flow_store import FINISHED
from trek.flow.graph import ServiceWork, Step
from trek.flow.keys import Components, explain_change
from trek.flow.run_plan import RunPlan


class KeptResults:
    """Looks for the results of a plan's steps, in the run that is resumed and under their keys."""

    def __init__(
        self, plan: RunPlan, *, store: FlowReader, previous: Mapping[str, StepRow], in_memory: Sequence[Step]
    ) -> None:
        self._plan, self._store, self._previous = plan, store, previous
        self._in_memory = set(in_memory)

    def find(self, step: Step, *, whole: Step, key: str, components: Components) -> tuple[list[Stored] | None, str]:
        """Outputs that may stand for a run of the step, or None, and why. `whole` is the map that it is a part of.

        InputError if the plan forbids that the step runs.
        """
        outputs, reason = self._look_for(step, whole=whole, key=key, components=components)
        is_kept_at_all = step.settings.cache and step not in self._in_memory
        if outputs is None and whole in self._plan.must_be_kept and is_kept_at_all:
            raise InputError(f"step {step.name!r} must run before --only can use it: {reason}. Run the flow first.")
        return outputs, reason

    def _look_for(
        self, step: Step, *, whole: Step, key: str, components: Components
    ) -> tuple[list[Stored] | None, str]:
        if whole in self._plan.forced:
            return None, "it was asked for"
        if isinstance(step.work, ServiceWork):
            return None, "a service is needed in every run"
        row = self._previous.get(step.name)
        if row and row.state in FINISHED and row.key == key and row.outputs:
            outputs: list[Stored] | None = self._store.read(row.outputs)
        else:
            outputs = self._store.find_result(key) if step.settings.cache else None
        if outputs is None:
            return None, self._why_missing(step, components)
        for stored in outputs:
            if (change := stored.find_change()) is not None:
                return None, change
        return outputs, "nothing changed"

    def _why_missing(self, step: Step, components: Components) -> str:
        if not step.settings.cache:
            return "its result is not kept"
        before = self._store.latest_components(step.name)
        return "what it gave was not kept" if before == components else explain_change(components, before)
