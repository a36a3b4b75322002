"""`twister2flow.twister2.task.PytorchTask`: a script that trains on several processes."""

from __future__ import annotations

import sys

from trek.compat.twister2flow.twister2.task.BaseTask import BaseTask
from trek.errors import InputError


class PytorchTask(BaseTask):
    """Runs a script as `parallelism` processes with `trek launch`; it finds its rank where mpirun would put it."""

    default_command = "trek launch"

    def __init__(self, name: str = "UNNAMED_TASK", parallelism: int = 4) -> None:
        super().__init__(name)
        if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
            raise InputError(f"parallelism must be a whole number of at least 1, got {parallelism!r}.")
        self.parallelism = parallelism
        self.hostfile: str | None = None

    def _program(self) -> list[str]:
        if self.command != self.default_command:
            return super()._program()
        hosts = ["--hostfile", self.hostfile] if self.hostfile else []
        launch = [sys.executable, "-m", "trek", "launch", "--workers", str(self.parallelism), *hosts]
        return [*launch, "-m", "trek.compat.twister2flow.bootstrap.mpi_script"]
