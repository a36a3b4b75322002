"""`twister2flow.twister2.task.Twister2Task`: a script with a Twister2Environment."""

from __future__ import annotations

from trek.compat.twister2flow.twister2.task.BaseTask import BaseTask


class Twister2Task(BaseTask):
    """Runs a script that starts itself as as many workers as its environment says.

    The command `twister2 submit …` is Trek's `python3` here: there is no JVM to submit to.
    """

    def set_command(self, command: str | None = None) -> None:
        """What to start the script with."""
        super().set_command(None if command is not None and command.startswith("twister2 submit") else command)
