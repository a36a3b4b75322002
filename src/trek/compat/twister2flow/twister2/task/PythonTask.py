"""`twister2flow.twister2.task.PythonTask`: a script that runs once."""

from __future__ import annotations

from trek.compat.twister2flow.twister2.task.BaseTask import BaseTask


class PythonTask(BaseTask):
    """Runs a Python script in one process."""
