"""`trek preview-search`: how many trials a search would train to which length, without starting any."""

from __future__ import annotations

from pathlib import Path

import click

from trek.cli import render
from trek.cli.overrides import overrides_option
from trek.cli.render import json_option
from trek.cli.terminal import echo, echo_json


@click.command("preview-search")
@click.argument("config_file", type=click.Path(path_type=Path), metavar="CONFIG")
@overrides_option
@json_option
def preview_search(config_file: Path, *, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show how many trials of CONFIG end at which length if every rung promotes its full share."""
    from trek.experiments.config import ExperimentConfig
    from trek.search import preview

    config = ExperimentConfig.read(config_file, overrides=overrides)
    rows = preview(config)
    if as_json:
        echo_json(rows, indent=2)
        return
    render.show_table(rows, empty="No trials.")
    trials, length = sum(row["trials"] for row in rows), sum(row["trials"] * row["length"] for row in rows)
    echo(
        f"{render.count(trials, 'trial')}, {length} {rows[0]['unit']} in total; {config.searcher.describe_direction()}"
    )
