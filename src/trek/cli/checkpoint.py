"""`trek checkpoint …`: list and describe checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.render import json_option

if TYPE_CHECKING:
    from trek.client.client import Client


@click.group()
def checkpoint() -> None:
    """List and describe checkpoints."""


@checkpoint.command("list")
@click.option("--experiment", "experiment_id", type=int, help="Only of this experiment.")
@click.option("--trial", "trial_id", type=int, help="Only of this trial.")
@json_option
@click.pass_obj
def list_(obj: dict[str, Any], *, experiment_id: int | None, trial_id: int | None, as_json: bool) -> None:
    """List checkpoints, the newest first."""
    with _client(obj) as client:
        found = client.checkpoints(experiment_id=experiment_id, trial_id=trial_id)
    if as_json:
        render.show_json(found)
        return
    rows = [
        {
            "uuid": one.uuid,
            "experiment": one.experiment_id,
            "trial": one.trial_id,
            "batches": one.batches,
            "size": render.size(one.num_bytes),
            "metrics": render.hparams(one.metrics),
            "made": render.ago(one.time_s),
        }
        for one in found
    ]
    render.show_table(rows, empty="No checkpoints yet.")


@checkpoint.command()
@click.argument("uuid")
@json_option
@click.pass_obj
def describe(obj: dict[str, Any], uuid: str, *, as_json: bool) -> None:
    """Show a checkpoint; the beginning of its uuid is enough."""
    with _client(obj) as client:
        found = client.checkpoint(uuid)
    if as_json:
        render.show_json(found)
        return
    for name, value in found.model_dump().items():
        click.echo(f"{name}: {render.hparams(value) if isinstance(value, dict) else value}")


def _client(obj: dict[str, Any]) -> Client:
    from trek.client.opening import open_client

    return open_client(obj["master"])
