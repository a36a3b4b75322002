"""`trek ps …`: parameter servers outside a trial."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import click

from trek.cli import render
from trek.cli.render import json_option
from trek.cli.terminal import echo


@click.group()
def ps() -> None:
    """Run parameter servers, and show what they do."""


@ps.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Another one than loopback needs TREK_JOB_SECRET.")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="0 chooses a free one.")
@click.option("--grpc-port", type=click.IntRange(0, 65535), help="Serve gRPC there, too, for other languages.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="Serve figures for Prometheus there, at /metrics.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="For the journal, by which a killed server comes back, and rows."
)
@click.option(
    "--journal/--no-journal", default=True, show_default=True, help="Whether to keep a journal in the folder."
)
def serve(
    *, host: str, port: int, grpc_port: int | None, metrics_port: int | None, folder: Path | None, journal: bool
) -> None:
    """Run one parameter server until it is interrupted. Without --folder, it keeps nothing."""
    from trek.ps.server_process import serve as run

    secret = os.environ.get("TREK_JOB_SECRET", "")

    def tell(port: int, grpc_port: int | None) -> None:
        also = f", gRPC at {host}:{grpc_port}" if grpc_port is not None else ""
        echo(f"parameter server at {host}:{port}{also}")

    run(
        (host, port),
        secret=secret,
        folder=folder,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        is_journaled=journal,
        on_ready=tell,
    )


@ps.command()
@click.argument("address", nargs=-1, required=True)
@click.option("--follow", "-f", is_flag=True, help="Show them again every two seconds.")
@json_option
def stats(address: tuple[str, ...], *, follow: bool, as_json: bool) -> None:
    """Show rows, bytes, versions, staleness and latencies of servers (host:port …)."""
    from trek.ps.client import Client

    with Client(address, secret=os.environ.get("TREK_JOB_SECRET", ""), patience_s=5) as client:
        while True:
            found = client.stats()
            if as_json:
                echo(json.dumps(found))
            else:
                _show(found)
            if not follow:
                return
            time.sleep(2)


@ps.command()
@click.argument("address", nargs=-1, required=True)
@click.option("--to", "target", multiple=True, required=True, help="A new server (host:port); once for each of them.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    required=True,
    help="A folder that all servers share, for the checkpoint that they move by.",
)
@json_option
def move(address: tuple[str, ...], *, target: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Have the parameters of servers (host:port …) on others, of any number, while workers use them.

    What the new servers have is replaced. Workers go on with them by themselves.
    """
    from trek.ps.client import Client

    with Client(address, secret=os.environ.get("TREK_JOB_SECRET", ""), patience_s=5) as client:
        client.move(target, folder=folder)
    render.show_done(f"Moved to {', '.join(target)}.", as_json=as_json, servers=list(target))


def _show(found: list[dict[str, Any]]) -> None:
    for server in found:
        stale = ", ".join(f"{age}: {count}" for age, count in server["staleness"].items()) or "none"
        echo(f"Server {server['address']}: version {server['version']}, {server['dense']['bytes']} bytes dense")
        echo(f"Pushes by staleness: {stale}; rejected: {server['rejected']}")
        rows = [{"table": name, **figures} for name, figures in server["tables"].items()]
        render.show_table(rows, empty="No tables.")
        times = [
            {"request": name, **{key: _rounded(value) for key, value in figures.items() if key != "histogram"}}
            for name, figures in server["requests"].items()
        ]
        render.show_table(times, empty="No requests yet.")


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value
