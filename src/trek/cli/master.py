"""`trek master …`: the control plane by the name that its users know. The commands are those of `trek cluster`."""

from __future__ import annotations

import click

from trek.cli.cluster import info, stop


@click.group()
def master() -> None:
    """See the master, and stop it."""


master.add_command(info)
master.add_command(stop)
