"""`trek master …`: the commands of `trek cluster` under the name that users of a master know."""

from __future__ import annotations

import click

from trek.cli.cluster import info, stop


@click.group()
def master() -> None:
    """Show the master, and stop it."""


master.add_command(info)
master.add_command(stop)
