"""`trek job …`: the queue of trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trek.cli.connect import connect
from trek.cli.listing import Listing, listing_options
from trek.cli.terminal import echo

if TYPE_CHECKING:
    from trek.client.models import Job


@click.group()
def job() -> None:
    """Show the queue of trials, and change who goes first."""


@job.command("list")
@listing_options
@click.pass_obj
def list_(obj: dict[str, Any], *, listing: Listing) -> None:
    """List running trials, and queued ones in the order they will start."""
    with connect(obj) as client:
        found = client.jobs()
    listing.show(found, row=_row, empty="No trials are running or queued.")


@job.command()
@click.argument("experiment_id", type=int)
@click.option("--priority", type=click.IntRange(1, 99), help="Smaller numbers go first.  [default: 50]")
@click.option("--weight", type=float, help="The share of slots among experiments of the same priority.")
@click.option("--max-slots", type=click.IntRange(min=1), help="How many slots the experiment may use at most.")
@click.pass_obj
def update(
    obj: dict[str, Any], experiment_id: int, *, priority: int | None, weight: float | None, max_slots: int | None
) -> None:
    """Change how an experiment's trials are scheduled from now on."""
    with connect(obj) as client:
        client.change_experiment(experiment_id, priority=priority, weight=weight, max_slots=max_slots)
    echo(f"Updated experiment {experiment_id}.")


def _row(one: Job) -> dict[str, Any]:
    return {
        "trial": one.trial_id,
        "experiment": f"{one.experiment_id} {one.name}",
        "state": one.state,
        "slots": one.slots,
        "priority": one.priority,
        "waiting": one.waiting,
    }
