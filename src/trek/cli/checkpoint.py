"""`trek checkpoint …`: list, describe, verify, download and delete checkpoints, and find the best."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.listing import Listing, listing_options
from trek.cli.render import json_option
from trek.cli.terminal import confirm

if TYPE_CHECKING:
    from trek.client.models import CheckpointRecord


@click.group()
def checkpoint() -> None:
    """List, describe, verify, download and delete checkpoints."""


@checkpoint.command("list")
@click.option("--experiment", "experiment_id", type=int, help="Only checkpoints of this experiment.")
@click.option("--trial", "trial_id", type=int, help="Only checkpoints of this trial.")
@listing_options
@click.pass_obj
def list_(obj: dict[str, Any], *, experiment_id: int | None, trial_id: int | None, listing: Listing) -> None:
    """List checkpoints, the newest first."""
    with connect(obj) as client:
        found = client.checkpoints(experiment_id=experiment_id, trial_id=trial_id, limit=listing.enough)
    listing.show(found, row=_row, empty="No checkpoints.")


@checkpoint.command()
@click.argument("uuid")
@json_option
@click.pass_obj
def describe(obj: dict[str, Any], uuid: str, *, as_json: bool) -> None:
    """Show a checkpoint; the beginning of its uuid is enough."""
    with connect(obj) as client:
        render.show_fields(client.checkpoint(uuid), as_json=as_json)


@checkpoint.command()
@click.argument("experiment_id", type=int)
@json_option
@click.pass_obj
def best(obj: dict[str, Any], experiment_id: int, *, as_json: bool) -> None:
    """Show an experiment's best checkpoint: the best value of its searcher's metric over all trials."""
    with connect(obj) as client:
        render.show_fields(client.best_checkpoint(experiment_id), as_json=as_json)


@checkpoint.command()
@click.argument("uuid")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The target folder.  [default: the uuid]")
@json_option
@click.pass_obj
def download(obj: dict[str, Any], uuid: str, *, output: Path | None, as_json: bool) -> None:
    """Download a checkpoint's files."""
    with connect(obj) as client:
        found = client.checkpoint(uuid)
        target = output or Path(found.uuid)
        client.download_checkpoint(found.uuid, target)
    text = f"Wrote checkpoint {found.uuid} to {target}"
    render.show_done(text, as_json=as_json, uuid=found.uuid, path=str(target))


@checkpoint.command()
@click.argument("place", metavar="UUID|FOLDER|URL")
@json_option
@click.pass_obj
def verify(obj: dict[str, Any], place: str, *, as_json: bool) -> None:
    """Check every file of a checkpoint against its checksum."""
    from trek.experiments.checkpoint import Checkpoint, is_id

    with connect(obj) if is_id(place) else nullcontext() as client:
        found = Checkpoint(place, client=client)
        found.verify()
    files = len(found.manifest["files"])
    text = f"Checkpoint {found.uuid}: {render.count(files, 'file')} verified."
    render.show_done(text, as_json=as_json, uuid=found.uuid, files=files)


@checkpoint.command()
@click.argument("uuid")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete(obj: dict[str, Any], uuid: str, *, yes: bool, as_json: bool) -> None:
    """Delete a checkpoint's files; its record stays."""
    with connect(obj) as client:
        found = client.checkpoint(uuid)
        if not yes:
            confirm(f"Delete checkpoint {found.uuid} of trial {found.trial_id}?")
        client.delete_checkpoint(found.uuid)
    render.show_done(f"Deleted checkpoint {found.uuid}.", as_json=as_json, deleted=found.uuid)


def _row(one: CheckpointRecord) -> dict[str, Any]:
    return {
        "uuid": one.uuid,
        "experiment": one.experiment_id,
        "trial": one.trial_id,
        "batches": one.batches,
        "size": render.size(one.num_bytes),
        "metrics": render.hparams(one.metrics),
        "created": render.ago(one.time_s),
    }
