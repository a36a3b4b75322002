"""`trek cluster …`: show the control plane, and stop it; write what makes a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.cluster_render import render_command
from trek.cli.render import json_option
from trek.cli.terminal import echo

if TYPE_CHECKING:
    from trek.client.client import Client

STOP_TIMEOUT_S = 60.0


@click.group()
def cluster() -> None:
    """Show the control plane of this machine, and stop it."""


@cluster.command()
@json_option
@click.pass_obj
def info(obj: dict[str, Any], *, as_json: bool) -> None:
    """Show the control plane, its slots and its trials. Does not start one."""
    client = _running(obj)
    if client is None:
        echo("null" if as_json else "No control plane is running; commands start one when they need it.")
        return
    with client:
        found = client.cluster()
        if as_json:
            render.show_json(found)
            return
        echo(f"Control plane {found.version} at {client.url}, process {found.pid}")
        echo(f"Slots: {found.slots}, {found.free_slots} free")
        echo(f"Trials: {found.running_trials} running, {found.queued_trials} queued")
        echo(f"Engine: {found.engine}, nodes: {len(found.nodes)}")
        for node in found.nodes:
            trials = ", ".join(f"trial {one}" for one in node.trials) or "idle"
            echo(f"  {node.name} ({node.address}): {node.slots} slots, {trials}")


@cluster.command()
@click.option("--kill", is_flag=True, help="End running experiments first; otherwise they resume at the next start.")
@json_option
@click.pass_obj
def stop(obj: dict[str, Any], *, kill: bool, as_json: bool) -> None:
    """Stop the control plane of this machine. Running trials save, and resume at its next start."""
    from trek.errors import OutsideError

    client = _running(obj)
    if client is None:
        render.show_done("No control plane is running.", as_json=as_json, stopped=False)
        return
    import psutil

    with client:
        process = psutil.Process(client.cluster().pid) if not obj["master"] else None
        client.stop_cluster(kill=kill)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while _is_alive(process, client):
            if time.monotonic() > deadline:
                raise OutsideError(
                    f"the control plane did not stop within {STOP_TIMEOUT_S:.0f} s. See control.log in TREK_HOME."
                )
            time.sleep(0.05)
    render.show_done("Stopped.", as_json=as_json, stopped=True)


def _is_alive(process: Any, client: Client) -> bool:
    from trek.errors import MasterUnreachable

    if process is not None:
        return bool(process.is_running() and process.status() != "zombie")
    try:
        client.cluster()
    except MasterUnreachable:
        return False
    return True


def _running(obj: dict[str, Any]) -> Client | None:
    from trek.client.client import Client
    from trek.client.embedded import running_address
    from trek.system.home import trek_home

    if obj["master"]:
        return Client(obj["master"])
    address = running_address(trek_home())
    return Client(address) if address is not None else None


cluster.add_command(render_command)
