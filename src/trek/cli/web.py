"""`trek web`: the web page in a browser that is logged in by a link, which works once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from trek.cli.connect import connect
from trek.cli.render import json_option
from trek.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from trek.client.client import Client


@click.command()
@click.argument("page", default="/", metavar="[PAGE]")
@click.option("--open/--no-open", "is_opened", default=None, help="Open a browser.  [default: if one can be seen]")
@json_option
@click.pass_obj
def web(obj: dict[str, Any], page: str, *, is_opened: bool | None, as_json: bool) -> None:
    """Print a link to the web page, and open it. PAGE is the part to show, such as /experiments/3.

    The link logs a browser in as you, once, within ten minutes.
    """
    with connect(obj) as client:
        if as_json:
            echo_json({"link": page_link(client, page)})
        else:
            show_page(client, page, is_opened=is_opened)


def page_link(client: Client, page: str) -> str:
    """A link to a page that logs a browser in."""
    return client.page_link(page if page.startswith("/") else f"/{page}")


def show_page(client: Client, page: str, *, is_opened: bool | None, to_stderr: bool = False) -> None:
    """Print a link to a page, and open it if `is_opened`, or if it is None and there is a terminal and a screen."""
    import os

    link = page_link(client, page)
    echo(f"Web page:   {link}", err=to_stderr)
    if is_opened is None:
        has_screen = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
        is_opened = has_screen and sys.stdout.isatty()
    if is_opened:
        import webbrowser

        webbrowser.open(link)
