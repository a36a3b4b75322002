"""Commands that change an existing experiment, or create a new one from it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.new_experiment import Following, following_options
from trek.cli.overrides import overrides_option, parse_overrides
from trek.cli.render import json_option
from trek.cli.terminal import confirm, echo

if TYPE_CHECKING:
    from trek.client.models import ExperimentDetails

PAUSE_TIMEOUT_S = 120.0


def _show(details: ExperimentDetails, *, as_json: bool, text: str = "") -> None:
    if as_json:
        render.show_json(details)
    else:
        echo(text or f"Experiment {details.id} is {details.state}.")


@click.command()
@click.argument("experiment_id", type=int)
@json_option
@click.pass_obj
def pause(obj: dict[str, Any], experiment_id: int, *, as_json: bool) -> None:
    """Pause an experiment: running trials save and release their slots."""
    with connect(obj) as client:
        details = client.pause_experiment(experiment_id)
        deadline = time.monotonic() + PAUSE_TIMEOUT_S
        while details.state in ("queued", "running") and time.monotonic() < deadline:
            time.sleep(0.1)
            details = client.experiment(experiment_id)
    _show(details, as_json=as_json)


@click.command()
@click.argument("experiment_id", type=int)
@json_option
@click.pass_obj
def activate(obj: dict[str, Any], experiment_id: int, *, as_json: bool) -> None:
    """Let a paused experiment run again."""
    with connect(obj) as client:
        _show(client.activate_experiment(experiment_id), as_json=as_json)


@click.command()
@click.argument("experiment_id", type=int)
@click.option("--undo", is_flag=True, help="Show it in lists again.")
@json_option
@click.pass_obj
def archive(obj: dict[str, Any], experiment_id: int, *, undo: bool, as_json: bool) -> None:
    """Hide an ended experiment from lists; nothing is deleted."""
    with connect(obj) as client:
        details = client.change_experiment(experiment_id, is_archived=not undo)
    _show(
        details, as_json=as_json, text=f"Experiment {experiment_id} is {'no longer archived' if undo else 'archived'}."
    )


@click.command()
@click.argument("experiment_id", type=int)
@click.argument("labels", nargs=-1)
@click.option("--remove", is_flag=True, help="Remove the labels instead of adding them.")
@json_option
@click.pass_obj
def label(obj: dict[str, Any], experiment_id: int, labels: tuple[str, ...], *, remove: bool, as_json: bool) -> None:
    """Add LABELS to an experiment, or remove them."""
    with connect(obj) as client:
        before = set(client.experiment(experiment_id).labels)
        after = before - set(labels) if remove else before | set(labels)
        details = client.change_experiment(experiment_id, labels=sorted(after))
    _show(details, as_json=as_json, text=f"Labels: {', '.join(details.labels) or 'none'}")


@click.command()
@click.argument("experiment_id", type=int)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete(obj: dict[str, Any], experiment_id: int, *, yes: bool, as_json: bool) -> None:
    """Delete an ended experiment with its records, logs and checkpoints."""
    with connect(obj) as client:
        name = client.experiment(experiment_id).name
        if not yes:
            confirm(f"Delete experiment {experiment_id} ({name}) with all its checkpoints?")
        client.delete_experiment(experiment_id)
    render.show_done(f"Deleted experiment {experiment_id}.", as_json=as_json, deleted=experiment_id)


@click.command()
@click.argument("experiment_id", type=int)
@overrides_option
@following_options
@json_option
@click.pass_obj
def fork(
    obj: dict[str, Any], experiment_id: int, *, overrides: tuple[str, ...], following: Following, as_json: bool
) -> None:
    """Run an experiment again from the start, with the same code and the same config plus overrides."""
    with connect(obj) as client:
        made = client.fork_experiment(experiment_id, changes=parse_overrides(overrides))
        following.finish(client, made, as_json=as_json)


@click.command("continue")
@click.argument("experiment_id", type=int)
@overrides_option
@following_options
@json_option
@click.pass_obj
def continue_(
    obj: dict[str, Any], experiment_id: int, *, overrides: tuple[str, ...], following: Following, as_json: bool
) -> None:
    """Continue from an experiment's best checkpoint; set a greater length with --config searcher.max_length=…"""
    with connect(obj) as client:
        made = client.fork_experiment(experiment_id, changes=parse_overrides(overrides), is_continued=True)
        following.finish(client, made, as_json=as_json)


@click.command()
@click.argument("experiment_id", type=int)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The target folder.  [default: experiment_ID]")
@json_option
@click.pass_obj
def download(obj: dict[str, Any], experiment_id: int, *, output: Path | None, as_json: bool) -> None:
    """Download an experiment's model folder and its config."""
    import yaml

    from trek.errors import InputError
    from trek.experiments.package import unpack

    target = output or Path(f"experiment_{experiment_id}")
    if target.exists():
        raise InputError(f"{str(target)!r} already exists. Name another folder with --output.")
    with connect(obj) as client:
        details = client.experiment(experiment_id)
        count = unpack(client.archive(details.archive), target)
    config = target / "experiment.yaml"
    if not config.exists():
        config.write_text(yaml.safe_dump(details.config, sort_keys=False))
    text = f"Wrote {render.count(count, 'file')} and {config.name} to {target}"
    render.show_done(text, as_json=as_json, path=str(target), files=count)


COMMANDS = (pause, activate, archive, label, delete, fork, continue_, download)
