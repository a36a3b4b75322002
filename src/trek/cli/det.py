"""`trek det …`: Determined's command line. `alias det='trek det'` keeps scripts as they are."""

from __future__ import annotations

import shlex

import click

from trek.cli.terminal import echo


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def det(ctx: click.Context, words: tuple[str, ...]) -> object:
    """Run a command of Determined as the command of Trek that does the same."""
    from trek.cli.main import trek
    from trek.compat.determined.commands import to_trek

    command = to_trek(list(words))
    echo(f"trek: det is `trek {shlex.join(command)}`", err=True)
    master = (ctx.obj or {}).get("master")
    given = ["-m", master] if master and "-m" not in command[:1] else []
    return trek.main(args=[*given, *command], prog_name="trek", standalone_mode=False)
