"""`trek trial …`: describe trials, their metrics and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.lines import print_lines, search_options
from trek.cli.listing import Listing, listing_options
from trek.cli.render import json_option

if TYPE_CHECKING:
    from trek.client.models import MetricPoint, TrialRecord


@click.group()
def trial() -> None:
    """Describe, end and scale trials; their metrics and logs."""


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
    """End one trial; its experiment goes on."""
    with connect(obj) as client:
        found = client.kill_trial(trial_id)
    if as_json:
        render.show_json(found)
    else:
        click.echo(f"Trial {trial_id} is {found.state}." if found.state != "running" else f"Ending trial {trial_id}.")


@trial.command()
@click.argument("trial_id", type=int)
@click.option("--slots", type=click.IntRange(min=1), required=True, help="How many slots it shall have.")
@json_option
@click.pass_obj
def scale(obj: dict[str, Any], trial_id: int, *, slots: int, as_json: bool) -> None:
    """Let a trial go on with another number of slots, from where it is; this is no restart."""
    with connect(obj) as client:
        found = client.scale_trial(trial_id, slots=slots)
    if as_json:
        render.show_json(found)
        return
    shown = f"{slots} slot{'' if slots == 1 else 's'}"
    is_running = found.state == "running"
    click.echo(
        f"Trial {trial_id} saves and goes on with {shown}." if is_running else f"Trial {trial_id} takes {shown}."
    )


@trial.command()
@click.argument("trial_id", type=int)
@json_option
@click.pass_obj
def describe(obj: dict[str, Any], trial_id: int, *, as_json: bool) -> None:
    """Show a trial."""
    with connect(obj) as client:
        found = client.trial(trial_id)
    if as_json:
        render.show_json(found)
        return
    for name, value in found.model_dump().items():
        if value not in (None, "", {}, []):
            text = render.hparams(value) if isinstance(value, dict) else value
            click.echo(f"{name}: {text}")


@trial.command()
@click.argument("trial_id", type=int)
@click.option("--group", help="Only this group, such as training or validation.")
@click.option(
    "--max-points",
    type=click.IntRange(4, 100_000),
    help="Thin out longer series to so many points of each group; first, last and every extreme stay.",
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
@click.option("-f", "--follow", "is_followed", is_flag=True, help="Go on until the trial has ended.")
@click.option("--tail", type=click.IntRange(min=1), help="Only the last so many lines.")
@search_options
@json_option
@click.pass_obj
def logs(
    obj: dict[str, Any],
    trial_id: int,
    *,
    is_followed: bool,
    tail: int | None,
    search: dict[str, Any],
    as_json: bool,
) -> None:
    """Print what a trial wrote."""
    with connect(obj) as client:
        details = client.experiment(client.trial(trial_id).experiment_id)
        print_lines(
            lambda **query: client.trial_logs(trial_id, **query),
            state=lambda: client.trial(trial_id).state,
            details=details,
            is_followed=is_followed,
            tail=tail,
            search=search,
            as_json=as_json,
        )


def _row(one: TrialRecord) -> dict[str, Any]:
    return {
        "id": one.id,
        "state": one.state,
        "progress": render.percent(one.progress),
        "batches": one.batches,
        "slots": one.slots,
        "restarts": one.restarts,
        "best": render.number(one.best_metric),
        "hyperparameters": render.hparams(one.hparams),
        "note": one.waiting or one.error.partition("\n")[0],
    }
