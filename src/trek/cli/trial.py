"""`trek trial …`: describe trials, their metrics and logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.lines import logs_command
from trek.cli.listing import Listing, listing_options
from trek.cli.render import json_option
from trek.cli.terminal import echo, echo_json
from trek.cli.trial_report import report
from trek.errors import InputError
from trek.system.disk import storage_errors
from trek.train.artifacts import artifact_name

if TYPE_CHECKING:
    from trek.client.client import Client
    from trek.client.models import ArtifactRecord, MetricPoint, TrialRecord, WorkerChange


@click.group()
def trial() -> None:
    """Describe, end and scale trials, and show their metrics and logs."""


@trial.command("list")
@click.argument("experiment_id", type=int)
@listing_options
@click.pass_obj
def list_(obj: dict[str, Any], experiment_id: int, *, listing: Listing) -> None:
    """List the trials of an experiment."""
    with connect(obj) as client:
        found = client.trials(experiment_id, limit=listing.enough)
    listing.show(found, row=_row, empty="No trials.")


@trial.command()
@click.argument("trial_id", type=int)
@json_option
@click.pass_obj
def kill(obj: dict[str, Any], trial_id: int, *, as_json: bool) -> None:
    """End one trial; its experiment continues."""
    with connect(obj) as client:
        found = client.kill_trial(trial_id)
    if as_json:
        render.show_json(found)
    else:
        echo(f"Trial {trial_id} is {found.state}." if found.state != "running" else f"Ending trial {trial_id}.")


@trial.command()
@click.argument("trial_id", type=int)
@click.argument("slots", type=click.IntRange(min=1), required=False)
@click.option("--slots", "slots_option", type=click.IntRange(min=1), help="Another spelling of the argument.")
@json_option
@click.pass_obj
def scale(obj: dict[str, Any], trial_id: int, *, slots: int | None, slots_option: int | None, as_json: bool) -> None:
    """Change a trial's number of slots; it does not count as restarted.

    A running trial saves and resumes with them. An elastic trial goes on, with workers that join or leave.
    """
    number = slots if slots is not None else slots_option
    if number is None or (slots is not None and slots_option is not None):
        raise click.UsageError("give the new number of slots once, such as `trek trial scale 12 4`.")
    with connect(obj) as client:
        found = client.scale_trial(trial_id, slots=number)
    if as_json:
        render.show_json(found)
    else:
        echo(_scaled(found, number))


def _scaled(found: TrialRecord, slots: int) -> str:
    if found.num_workers is not None:
        return f"Trial {found.id} goes on with up to {render.count(slots, 'worker')}, without a restart."
    shown = render.count(slots, "slot")
    is_running = found.state == "running"
    return f"Trial {found.id} saves and resumes with {shown}." if is_running else f"Trial {found.id} will use {shown}."


@trial.command()
@click.argument("trial_id", type=int)
@json_option
@click.pass_obj
def describe(obj: dict[str, Any], trial_id: int, *, as_json: bool) -> None:
    """Show a trial; of an elastic one also which workers joined and left, and why."""
    with connect(obj) as client:
        found = client.trial(trial_id)
        changes = client.worker_changes(trial_id) if found.slot_range is not None else []
    if as_json:
        workers = {"worker_changes": [one.model_dump(mode="json") for one in changes]} if found.slot_range else {}
        echo_json({**found.model_dump(mode="json"), **workers}, indent=2)
        return
    render.show_fields(found, as_json=False)
    if changes:
        echo("")
        render.show_table([_change_row(one) for one in changes], empty="")


@trial.command()
@click.argument("trial_id", type=int)
@click.option("--group", help="Only metrics of this group, such as training or validation.")
@click.option(
    "--max-points",
    type=click.IntRange(4, 100_000),
    help="Downsample longer series to this many points of each group, with the first, the last and every extreme.",
)
@listing_options
@click.pass_obj
def metrics(obj: dict[str, Any], trial_id: int, *, group: str | None, max_points: int | None, listing: Listing) -> None:
    """Show a trial's metrics."""
    with connect(obj) as client:
        points = client.trial_metrics(trial_id, group=group, max_points=max_points)
    names = sorted({name for point in points for name in point.metrics})

    def row(point: MetricPoint) -> dict[str, Any]:
        values = {name: point.metrics.get(name) for name in names}
        return {"batches": point.batches, "epoch": f"{point.epoch:.2f}", "group": point.group, **values}

    listing.show(points, row=row, empty="No metrics yet.")


@trial.command()
@click.argument("trial_id", type=int)
@click.option("--download", type=click.Path(path_type=Path), help="Write them to this folder, which must not exist.")
@listing_options
@click.pass_obj
def artifacts(obj: dict[str, Any], trial_id: int, *, download: Path | None, listing: Listing) -> None:
    """List the files that a trial keeps of its user's own: plots, tables, reports."""
    with connect(obj) as client:
        found = client.artifacts(trial_id)
        if download is not None:
            _download(client, trial_id, found, download)
    listing.show(found, row=_artifact_row, empty="No artifacts.")


def _download(client: Client, trial_id: int, found: list[ArtifactRecord], folder: Path) -> None:
    if folder.exists():
        raise InputError(f"{str(folder)!r} already exists. Name another folder.")
    for one in found:
        path = folder / artifact_name(one.name)  # whatever the control plane says
        with storage_errors(path, remedy="Name another folder."):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.artifact(trial_id, one.name))


def _artifact_row(one: ArtifactRecord) -> dict[str, Any]:
    return {"name": one.name, "size": render.size(one.num_bytes), "created": render.ago(one.time_s)}


trial.add_command(logs_command("trial"))
trial.add_command(report)


def _change_row(one: WorkerChange) -> dict[str, Any]:
    return {
        "when": render.ago(one.time_s),
        "run": one.run,
        "group": one.generation,
        "worker": one.worker,
        "what": one.text,
        "workers": one.num_workers,
    }


def _row(one: TrialRecord) -> dict[str, Any]:
    return {
        "id": one.id,
        "state": render.trial_state(one),
        "progress": render.percent(one.progress),
        "batches": one.batches,
        "slots": one.slots,
        "restarts": one.restarts,
        "best": render.number(one.best_metric),
        "hyperparameters": render.hparams(one.hparams),
        "note": one.waiting or one.error.partition("\n")[0],
    }
