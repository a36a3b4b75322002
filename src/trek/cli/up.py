"""`trek up`: a master in the foreground."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from trek.cli.engine_options import engine_option
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
@click.option(
    "--db",
    "database",
    metavar="URL",
    help="The database, such as postgresql://…, without a password: see --db-file.  [default: $TREK_DB, else SQLite]",
)
@click.option(
    "--db-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file that holds the URL of the database, which may then have a password.",
)
@click.option("--prefix", default="", metavar="PATH", help="The path under which a proxy serves it, such as /trek.")
@click.option(
    "--slots", type=click.IntRange(min=1), help="How many processes may train at once.  [default: one per core or GPU]"
)
@click.option("--engine", default="local", show_default=True, help="The engine that trials run on.")
@engine_option
@click.option(
    "--ray",
    "has_ray",
    is_flag=True,
    help="Run trials on Ray: on the cluster of RAY_ADDRESS or of this machine, or on one that is started here.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="The address or network of a proxy whose X-Forwarded-For is believed; may be repeated.  [default: none]",
)
@click.option(
    "--max-log-mb",
    type=click.FloatRange(min=0.1),
    default=64,
    show_default=True,
    help="How many MiB of the log of one trial are stored.",
)
@click.option(
    "--run-as",
    metavar="USER",
    help="The system's user that trials run as; 'owner' for the one with the name of the experiment's owner. "
    "Requires root.  [default: the user of the master]",
)
@click.option(
    "--pass-env",
    multiple=True,
    metavar="NAME",
    help="With --run-as: a variable of the master's environment that trials inherit too; may be repeated.",
)
def up(
    *,
    host: str,
    port: int,
    database: str | None,
    db_file: Path | None,
    prefix: str,
    slots: int | None,
    engine: str,
    engine_options: tuple[str, ...],
    has_ray: bool,
    trusted_proxies: tuple[str, ...],
    max_log_mb: float,
    run_as: str | None,
    pass_env: tuple[str, ...],
) -> None:
    """Start a master that other commands reach with -m URL or TREK_MASTER.

    Listening on an address that other machines can reach requires users; see `trek user create`.
    """
    from trek.client.embedded import ask_background_to_end
    from trek.control.run_as import RunAs
    from trek.engines import ENGINES
    from trek.engines.option_words import read_engine_options
    from trek.master.control_plane import ControlPlane, MasterSettings
    from trek.system.home import trek_home

    options = read_engine_options(engine_options)
    engine = "ray" if has_ray else engine
    ENGINES.check(engine)
    _check_networks(trusted_proxies)
    home, path = trek_home(), prefix.rstrip("/")

    def announce(url: str) -> None:
        echo(f"Trek master at {url}{path} (Ctrl-C stops it; running trials save, and resume at the next start)")

    settings = MasterSettings(
        home=home,
        host=host,
        port=port,
        database=_database_url(database, db_file, environ=os.environ),
        prefix=path,
        slots=slots,
        engine=engine,
        engine_options=options,
        max_log_mb=max_log_mb,
        run_as=RunAs(run_as) if run_as else None,
        pass_env=pass_env,
        trusted_proxies=trusted_proxies,
    )
    settings.check()  # before anything is stopped
    if ask_background_to_end(home):
        echo("Taking over from the control plane that commands started in the background …", err=True)
        settings = replace(settings, patience_s=TAKE_OVER_S)
    with _ray_head(options) if has_ray else nullcontext():
        ControlPlane(settings, on_ready=announce).serve()


def _ray_head(options: dict[str, Any]) -> AbstractContextManager[None]:
    """A Ray cluster for the block: the one that the options or the environment name, else one of this machine."""
    from trek.engines.ray.head import ray_head

    return ray_head(options.get("address"), on_start=lambda address: echo(f"Ray cluster at {address}"))


def _database_url(option: str | None, file: Path | None, *, environ: MutableMapping[str, str]) -> str | None:
    """The database's URL: from the option, else the file, else TREK_DB, which trials do not inherit."""
    from trek.errors import InputError
    from trek.experiments.masking import masked_text

    inherited = environ.pop("TREK_DB", None)
    if option is not None and file is not None:
        raise InputError("--db and --db-file exclude each other. Give one of them.")
    if option is not None and masked_text(option) != option:
        echo(
            "trek: warning: every user of this machine can read the password in --db while the master runs. "
            "Use --db-file, TREK_DB, or a libpq password file (PGPASSFILE).",
            err=True,
        )
    if file is None:
        return option or inherited or None
    try:
        url = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"cannot read --db-file {str(file)!r}: {reason}. Write the database's URL to it.") from None
    if "://" not in url or any(character.isspace() for character in url):
        raise InputError(f"--db-file {str(file)!r} must hold one URL, such as postgresql://user:password@host/trek.")
    return url


def _check_networks(values: tuple[str, ...]) -> None:
    import ipaddress

    from trek.errors import InputError

    for value in values:
        try:
            ipaddress.ip_network(value, strict=False)
        except ValueError:
            raise InputError(
                f"invalid --trusted-proxy {value!r}: expected an address or a network, such as 10.0.0.5 or 10.0.0.0/8."
            ) from None
