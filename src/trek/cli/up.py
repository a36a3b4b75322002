"""`trek up`: a master in the foreground."""

from __future__ import annotations

import click

from trek.cli.terminal import echo

TAKE_OVER_S = 60.0
"""How long the trials of the background control plane may take to save."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="The port to listen on; 0 chooses a free one.",
)
@click.option("--db", "database", metavar="URL", help="The database, such as postgresql://…  [default: SQLite]")
@click.option("--prefix", default="", metavar="PATH", help="The path under which a proxy serves it, such as /trek.")
@click.option(
    "--slots", type=click.IntRange(min=1), help="How many processes may train at once.  [default: one per core or GPU]"
)
@click.option("--engine", default="local", show_default=True, help="The engine that trials run on.")
def up(*, host: str, port: int, database: str | None, prefix: str, slots: int | None, engine: str) -> None:
    """Start a master that other commands reach with -m URL or TREK_MASTER.

    Listening on an address that other machines can reach requires users; see `trek user create`.
    """
    from trek.client.embedded import ask_background_to_end
    from trek.engines import ENGINES
    from trek.master.control_plane import ControlPlane, MasterSettings
    from trek.world import trek_home

    ENGINES.check(engine)
    home, path = trek_home(), prefix.rstrip("/")

    def announce(url: str) -> None:
        echo(f"Trek master at {url}{path} (Ctrl-C stops it; running trials save, and resume at the next start)")

    patience_s = 0.0
    if ask_background_to_end(home):
        echo("Taking over from the control plane that commands started in the background …", err=True)
        patience_s = TAKE_OVER_S
    settings = MasterSettings(
        home=home,
        host=host,
        port=port,
        database=database,
        prefix=path,
        slots=slots,
        engine=engine,
        patience_s=patience_s,
    )
    ControlPlane(settings, on_ready=announce).serve()
