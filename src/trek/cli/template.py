"""`trek template …`: shared parts of configs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.listing import Listing, listing_options
from trek.cli.render import json_option
from trek.cli.terminal import echo_lines

if TYPE_CHECKING:
    from trek.client.models import Template


@click.group()
def template() -> None:
    """Manage templates: shared parts of configs."""


@template.command("set")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def set_(obj: dict[str, Any], name: str, file: Path, *, as_json: bool) -> None:
    """Set the template NAME to the YAML in FILE; use it with `experiment create --template NAME`."""
    from trek.experiments.yaml_source import read_yaml

    source = read_yaml(file)
    with connect(obj) as client:
        client.set_template(name, source.data)
    render.show_done(f"Set template {name}.", as_json=as_json, name=name)


@template.command("list")
@listing_options
@click.pass_obj
def list_(obj: dict[str, Any], *, listing: Listing) -> None:
    """List templates."""
    with connect(obj) as client:
        found = client.templates()
    listing.show(found, row=_row, empty="No templates.")


@template.command()
@click.argument("name")
@json_option
@click.pass_obj
def describe(obj: dict[str, Any], name: str, *, as_json: bool) -> None:
    """Show a template."""
    import yaml

    from trek.experiments.masking import masked

    with connect(obj) as client:
        template = client.template(name)
    found = template.model_copy(update={"config": masked(template.config)})
    if as_json:
        render.show_json(found)
    else:
        echo_lines(yaml.safe_dump(found.config, sort_keys=False).rstrip())


@template.command()
@click.argument("name")
@json_option
@click.pass_obj
def delete(obj: dict[str, Any], name: str, *, as_json: bool) -> None:
    """Delete a template; experiments created from it keep their configs."""
    with connect(obj) as client:
        client.delete_template(name)
    render.show_done(f"Deleted template {name}.", as_json=as_json, deleted=name)


def _row(one: Template) -> dict[str, Any]:
    return {"name": one.name, "keys": ",".join(one.config), "owner": one.owner, "set": render.ago(one.created_s)}
