"""The reference of the command line as Markdown, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from trek.cli.main import trek


def command_reference() -> str:
    """Every command with its usage, help text and options."""
    return "\n\n".join(_describe(context) for context in walk(click.Context(trek, info_name="trek")))


def walk(context: click.Context) -> Iterator[click.Context]:
    """The command of `context` and all below it, each in a context of its own."""
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from walk(click.Context(inner, info_name=name, parent=context))


def _describe(context: click.Context) -> str:
    """One command: groups have a heading above those of their commands."""
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [
        f"{'##' if isinstance(command, click.Group) or context.command_path.count(' ') < 2 else '###'} "
        f"{context.command_path}",
        _prose(command.help),
        f"```text\n{usage}\n```",
        "\n".join(_options(context)),
        _prose(command.epilog),
    ]
    return "\n\n".join(part for part in parts if part)


def _prose(text: str | None) -> str:
    return inspect.cleandoc(text or "").replace("\b\n", "")


def _options(context: click.Context) -> Iterator[str]:
    """One line each; what is an argument stands in the usage, and every command has --help."""
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None and "--help" not in parameter.opts:
            yield f"- `{record[0]}`: {record[1]}"
