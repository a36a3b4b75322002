"""`--engine-option KEY=VALUE`, shared by the commands that choose an engine."""

from __future__ import annotations

import click

engine_option = click.option(
    "--engine-option",
    "engine_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set an option of the engine, such as address=10.0.0.1:6379 or placement=SPREAD; may be repeated.",
)
