"""`trek up`: a master in the foreground."""

from __future__ import annotations

import ipaddress

import click

from trek.errors import InputError


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one.")
@click.option("--db", "database", metavar="URL", help="The database, such as postgresql://…; without, SQLite.")
@click.option("--token", envvar="TREK_TOKEN", help="What clients must show; demanded for any address but loopback.")
@click.option("--slots", type=click.IntRange(min=1), help="How many processes may train at once.")
def up(*, host: str, port: int, database: str | None, token: str | None, slots: int | None) -> None:
    """Start a master that other commands reach with -m URL or TREK_MASTER."""
    if not _is_loopback(host) and not token:
        raise InputError(
            f"a master on {host} could be reached by others, so it needs a token. Set --token or TREK_TOKEN, "
            "or listen on 127.0.0.1."
        )
    from trek.master.control_plane import ControlPlane, MasterSettings
    from trek.world import trek_home

    settings = MasterSettings(home=trek_home(), host=host, port=port, database=database, token=token, slots=slots)

    def tell(url: str) -> None:
        click.echo(f"Trek master at {url} (Ctrl-C ends it; running trials save and go on at the next start)")

    ControlPlane(settings, on_ready=tell).serve()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
