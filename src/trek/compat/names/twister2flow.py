"""Twister2Flow's public names."""

from __future__ import annotations

from trek.compat.names.module_names import ModuleNames

_HERE = "trek.compat.twister2flow"
_TASKS = {
    "PythonTask": "trek.Flow.command",
    "PytorchTask": "trek.Flow.command, with `trek launch`",
    "Twister2Task": "trek.Flow.command",
}

TWISTER2FLOW = (
    ModuleNames("twister2flow.twister2.pipeline", f"{_HERE}.twister2.pipeline", {"PipelineGraph": "trek.Flow"}),
    ModuleNames(
        "twister2flow.twister2.pipeline.PipelineGraph",
        f"{_HERE}.twister2.pipeline.PipelineGraph",
        {"PipelineGraph": "trek.Flow"},
    ),
    *(
        ModuleNames(f"twister2flow.twister2.task.{name}", f"{_HERE}.twister2.task.{name}", {name: over})
        for name, over in {"BaseTask": "trek.Flow.command", **_TASKS}.items()
    ),
    ModuleNames(
        "twister2flow.bootstrap.PytorchJobSubmitter",
        f"{_HERE}.bootstrap.PytorchJobSubmitter",
        {"main": "`trek launch`"},
    ),
)
