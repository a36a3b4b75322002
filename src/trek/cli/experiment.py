"""`trek experiment …`: create, list, describe, follow and end experiments."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trek.cli import experiment_changes, render
from trek.cli.connect import connect
from trek.cli.lines import logs_command
from trek.cli.listing import Listing, listing_options
from trek.cli.new_experiment import Following, follow_experiment, following_options, kill_experiment
from trek.cli.overrides import overrides_option, parse_overrides
from trek.cli.render import json_option
from trek.cli.terminal import echo, echo_json, echo_lines

if TYPE_CHECKING:
    from trek.client.client import Client
    from trek.client.models import ExperimentDetails, ExperimentRecord
    from trek.experiments.package import Package


@click.group()
def experiment() -> None:
    """Create, list, describe, follow and end experiments."""


@experiment.command()
@click.argument("config_file", type=click.Path(path_type=Path), metavar="CONFIG")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@overrides_option
@click.option("--template", metavar="NAME", help="Lay the config over this template of the master.")
@following_options
@json_option
@click.pass_obj
def create(
    obj: dict[str, Any],
    config_file: Path,
    folder: Path,
    *,
    overrides: tuple[str, ...],
    template: str | None,
    following: Following,
    as_json: bool,
) -> None:
    """Create an experiment from the YAML file CONFIG and the model folder DIR, and follow it."""
    from trek.experiments.creation import connect_once, create_experiment

    def show_package(package: Package) -> None:
        files, size = render.count(package.num_files, "file"), render.size(package.num_bytes)
        echo(f"Preparing files ({folder}): {files}, {size}", err=as_json)

    with ExitStack() as stack:
        open_client = connect_once(lambda engine: stack.enter_context(connect(obj, engine=engine)))
        created = create_experiment(
            config_file,
            folder,
            connect=open_client,
            overrides=parse_overrides(overrides),
            template=template,
            on_packed=show_package,
        )
        following.finish(open_client(), created, as_json=as_json)


@experiment.command()
def schema() -> None:
    """Print the JSON Schema of configs, for use in editors."""

    from trek.experiments.config_schema import config_schema

    echo_json(config_schema(), indent=2)


@experiment.command()
@click.argument("experiment_id", type=int)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="S", help="Give up after S seconds.")
@json_option
@click.pass_obj
def wait(obj: dict[str, Any], experiment_id: int, *, timeout_s: float | None, as_json: bool) -> None:
    """Wait until an experiment has ended or is paused; exits as `create` does."""
    from trek.cli.follow import raise_for_end
    from trek.experiments.experiment import wait_for_end

    with connect(obj) as client:
        details = wait_for_end(client, experiment_id, timeout_s=timeout_s)
    if as_json:
        render.show_json(details)
    elif details.state in ("completed", "paused"):
        echo(f"Experiment {experiment_id} is {details.state}.")
    raise_for_end(details)


@experiment.command()
@click.argument("experiment_id", type=int)
@json_option
@click.pass_obj
def follow(obj: dict[str, Any], experiment_id: int, *, as_json: bool) -> None:
    """Show an experiment's logs and progress until the end. Ctrl-C leaves it running."""
    with connect(obj) as client:
        found = client.experiment(experiment_id)
        follow_experiment(client, found.id, detach_on_interrupt=True, as_json=as_json)


@experiment.command("list")
@click.option("--all", "with_archived", is_flag=True, help="Include archived experiments.")
@listing_options
@click.pass_obj
def list_(obj: dict[str, Any], *, with_archived: bool, listing: Listing) -> None:
    """List experiments, the newest first."""
    with connect(obj) as client:
        found = [one for one in client.experiments() if with_archived or not one.is_archived]
    listing.show(found, row=_row, empty="No experiments. Create one with `trek experiment create CONFIG DIR`.")


@experiment.command()
@click.argument("experiment_id", type=int)
@json_option
@click.pass_obj
def describe(obj: dict[str, Any], experiment_id: int, *, as_json: bool) -> None:
    """Show an experiment with its state, trials, best checkpoint and config."""
    with connect(obj) as client:
        details = client.experiment(experiment_id)
        if as_json:
            render.show_json(details)
        else:
            _describe(client, details)


@experiment.command()
@click.argument("experiment_id", type=int)
@json_option
@click.pass_obj
def kill(obj: dict[str, Any], experiment_id: int, *, as_json: bool) -> None:
    """End an experiment and wait until it has ended."""
    with connect(obj) as client:
        details = kill_experiment(client, experiment_id)
    if as_json:
        render.show_json(details)
    else:
        echo(f"Experiment {experiment_id} is {details.state}.")


def _row(one: ExperimentRecord) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "state": one.state,
        "progress": render.percent(one.progress),
        "trials": one.num_trials,
        "best": render.number(one.best_metric),
        "best trial": one.best_trial,
        "labels": ",".join(one.labels),
        "created": render.ago(one.created_s),
    }


def _describe(client: Client, details: ExperimentDetails) -> None:
    import yaml

    from trek.cli.follow import show_best_checkpoint

    echo(f"Experiment {details.id}: {details.name}")
    echo(f"State: {details.state}, {render.percent(details.progress)}")
    if details.error:
        echo(f"Error: {details.error}")
    if details.best_trial is not None:
        echo(f"Best {details.metric}: {render.number(details.best_metric)} (trial {details.best_trial})")
    show_best_checkpoint(client, details)
    echo()
    rows = [
        {
            "trial": one.id,
            "state": render.trial_state(one),
            "progress": render.percent(one.progress),
            "batches": one.batches,
            "restarts": one.restarts,
            details.metric: render.number(one.best_metric),
            "hyperparameters": render.hparams(one.hparams),
            "note": one.waiting or one.error.partition("\n")[0],
        }
        for one in details.trials
    ]
    render.show_table(rows, empty="No trials.")
    echo()
    echo_lines(yaml.safe_dump(details.config, sort_keys=False).rstrip())


for _command in (logs_command("experiment"), *experiment_changes.COMMANDS):
    experiment.add_command(_command)
