"""`trek token …`: tokens for scripts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.listing import Listing, listing_options
from trek.cli.render import json_option
from trek.cli.terminal import echo

if TYPE_CHECKING:
    from trek.client.models import Token


@click.group()
def token() -> None:
    """Create, list and revoke your tokens for scripts."""


@token.command()
@click.option("--description", default="", help="What the token is for.")
@click.option("--days", type=float, default=30, show_default=True, help="How many days it is valid.")
@json_option
@click.pass_obj
def create(obj: dict[str, Any], *, description: str, days: float, as_json: bool) -> None:
    """Create a token and show it, which is possible only once. Set it as TREK_TOKEN."""
    with connect(obj) as client:
        made = client.create_token(description=description, days=days)
    if as_json:
        render.show_json(made)
    else:
        echo(made.token)


@token.command("list")
@listing_options
@click.pass_obj
def list_(obj: dict[str, Any], *, listing: Listing) -> None:
    """List your tokens."""
    with connect(obj) as client:
        found = client.tokens()
    listing.show(found, row=_row, empty="No tokens.")


@token.command()
@click.argument("token_id", type=int)
@json_option
@click.pass_obj
def revoke(obj: dict[str, Any], token_id: int, *, as_json: bool) -> None:
    """Revoke a token."""
    with connect(obj) as client:
        client.revoke_token(token_id)
    render.show_done(f"Revoked token {token_id}.", as_json=as_json, revoked=token_id)


def _row(one: Token) -> dict[str, Any]:
    left = f"{max(one.expires_s - time.time(), 0) / 86_400:.0f} days"
    return {"id": one.id, "description": one.description, "created": render.ago(one.created_s), "left": left}
