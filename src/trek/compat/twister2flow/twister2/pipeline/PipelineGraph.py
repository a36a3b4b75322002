"""`twister2flow.twister2.pipeline.PipelineGraph`: scripts that run one after the other, as steps of a `trek.Flow`."""

from __future__ import annotations

from typing import Any

import trek
from trek.compat.twister2flow.twister2.task.BaseTask import BaseTask
from trek.errors import InputError


class PipelineGraph:
    """A pipeline; each has tasks of its own."""

    def __init__(self, name: str = "UNNAMED_PIPELINE") -> None:
        self.name = name
        self.tasks: list[BaseTask] = []

    def __repr__(self) -> str:
        return f"PipelineGraph({self.name!r}: {' -> '.join(task.name for task in self.tasks) or 'no tasks'})"

    def add_task(self, task: BaseTask) -> None:
        """Run a task after those before it."""
        if not isinstance(task, BaseTask):
            raise InputError(f"a task must be a PythonTask, Twister2Task or PytorchTask, got {type(task).__name__}.")
        self.tasks.append(task)

    def to_flow(self) -> trek.Flow:
        """The pipeline as a Flow, for `trek flow run` or further steps."""
        if not self.tasks:
            raise InputError(f"pipeline {self.name!r} has no tasks. Call add_task.")
        flow, before = trek.Flow(self.name), list[Any]()
        for task in self.tasks:
            before = [flow.command(task.name, task.argv(), after=before, cwd=task.exec_path or ".")]
        return flow

    def execute(self) -> None:
        """Run all tasks. The first that fails ends the pipeline with an error that says which and why."""
        self.to_flow().run()
