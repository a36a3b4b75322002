"""Tables of commands: they fit a terminal, and every command has a form for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from trek.cli import render
from trek.cli.main import trek


@given(st.lists(st.integers(1, 200), min_size=1, max_size=12), st.integers(40, 200))
def test_columns_fit_and_narrow_ones_are_whole(widths: list[int], total: int) -> None:
    fitted = render.fit_widths(widths, total=total)
    assert all(one <= before for one, before in zip(fitted, widths, strict=True))
    gaps = 2 * (len(widths) - 1)
    assert sum(fitted) + gaps <= max(total, sum(fitted) if max(fitted) == 1 else 0)
    if sum(min(width, render.MIN_WIDTH) for width in widths[1:]) + widths[0] + gaps <= total:
        assert fitted[0] == widths[0], "the id is cut last"
        assert all(one == before for one, before in zip(fitted, widths, strict=True) if before <= render.MIN_WIDTH)


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    render.show_table([{"id": 1, "name": "n" * 300}], empty="")
    assert "n" * 300 in capsys.readouterr().out


def _commands(group: click.Group, path: str = "trek") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


# Their output is a document by itself, that of the user's script, and that of a service.
WITHOUT = {
    "trek cluster render",
    "trek det",
    "trek experiment schema",
    "trek launch",
    "trek ps serve",
    "trek serve",
    "trek up",
}


def test_every_command_has_json() -> None:
    lacking = {
        path for path, command in _commands(trek) if not any("--json" in option.opts for option in command.params)
    }
    assert lacking == WITHOUT


def test_what_was_done_is_a_sentence_or_an_object() -> None:
    @click.command()
    @render.json_option
    def delete(*, as_json: bool) -> None:
        render.show_done("Deleted 3.", as_json=as_json, deleted=3)

    assert CliRunner().invoke(delete).output == "Deleted 3.\n"
    assert json.loads(CliRunner().invoke(delete, ["--json"]).output) == {"deleted": 3}
