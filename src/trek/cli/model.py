"""`trek model …`: the registry of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.listing import Listing, listing_options
from trek.cli.render import json_option
from trek.cli.terminal import confirm, echo

if TYPE_CHECKING:
    from trek.client.models import ModelVersion, RegisteredModel


@click.group()
def model() -> None:
    """Register checkpoints as versions of models."""


@model.command("list")
@listing_options
@click.pass_obj
def list_(obj: dict[str, Any], *, listing: Listing) -> None:
    """List models."""
    with connect(obj) as client:
        found = client.registered_models()
    listing.show(found, row=_row, empty="No models.")


@model.command()
@click.argument("name")
@click.option("--description", default="", help="What the model is for.")
@json_option
@click.pass_obj
def create(obj: dict[str, Any], name: str, *, description: str, as_json: bool) -> None:
    """Add a model without versions."""
    with connect(obj) as client:
        made = client.create_model(name, description=description)
    _show(made, as_json=as_json, text=f"Created model {name}.")


@model.command()
@click.argument("name")
@click.argument("checkpoint")
@click.option("--notes", default="", help="What is new in this version.")
@json_option
@click.pass_obj
def register(obj: dict[str, Any], name: str, checkpoint: str, *, notes: str, as_json: bool) -> None:
    """Make CHECKPOINT the next version of the model NAME; the beginning of its uuid is enough."""
    with connect(obj) as client:
        uuid = client.checkpoint(checkpoint).uuid
        made = client.register_version(name, checkpoint=uuid, notes=notes)
    _show(made, as_json=as_json, text=f"{name} version {made.versions[0].number} is checkpoint {uuid}.")


@model.command()
@click.argument("name")
@json_option
@click.pass_obj
def describe(obj: dict[str, Any], name: str, *, as_json: bool) -> None:
    """Show a model and its versions."""
    with connect(obj) as client:
        found = client.registered_model(name)
    if as_json:
        render.show_json(found)
        return
    echo(f"Model {found.name}, owned by {found.owner or 'nobody'}: {found.description or 'no description'}")
    render.show_table([_version_row(one) for one in found.versions], empty="No versions.")


@model.command()
@click.argument("name")
@listing_options
@click.pass_obj
def versions(obj: dict[str, Any], name: str, *, listing: Listing) -> None:
    """List the versions of a model, the newest first."""
    with connect(obj) as client:
        found = client.registered_model(name).versions
    listing.show(found, row=_version_row, empty="No versions.")


@model.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete(obj: dict[str, Any], name: str, *, yes: bool, as_json: bool) -> None:
    """Delete a model and its version numbers; its checkpoints stay."""
    with connect(obj) as client:
        if not yes:
            confirm(f"Delete the model {name} and its version numbers?")
        client.delete_model(name)
    render.show_done(f"Deleted model {name}.", as_json=as_json, deleted=name)


def _show(found: RegisteredModel, *, as_json: bool, text: str) -> None:
    if as_json:
        render.show_json(found)
    else:
        echo(text)


def _version_row(one: ModelVersion) -> dict[str, Any]:
    return {
        "version": one.number,
        "checkpoint": one.checkpoint,
        "notes": one.notes,
        "created": render.ago(one.created_s),
    }


def _row(one: RegisteredModel) -> dict[str, Any]:
    newest = one.versions[0] if one.versions else None
    return {
        "name": one.name,
        "versions": len(one.versions),
        "checkpoint": newest.checkpoint if newest is not None else None,
        "owner": one.owner,
        "description": one.description,
    }
