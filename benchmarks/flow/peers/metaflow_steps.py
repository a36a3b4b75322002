"""Trivial tasks with Metaflow: a foreach with one process per task."""

from __future__ import annotations

from metaflow import FlowSpec, Parameter, step


class ManySteps(FlowSpec):
    """Adds one to each of many numbers."""

    num_steps = Parameter("num_steps", default=10)

    @step
    def start(self) -> None:
        """Fan out."""
        self.numbers = list(range(self.num_steps))
        self.next(self.increment, foreach="numbers")

    @step
    def increment(self) -> None:
        """The trivial task."""
        self.result = self.input + 1
        self.next(self.join)

    @step
    def join(self, inputs: list[FlowSpec]) -> None:
        """Collect."""
        self.results = [one.result for one in inputs]
        self.next(self.end)

    @step
    def end(self) -> None:
        """Check."""
        assert self.results[-1] == self.num_steps


if __name__ == "__main__":
    ManySteps()
