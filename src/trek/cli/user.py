"""`trek user …`: logging in, and managing users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.listing import Listing, listing_options
from trek.cli.render import json_option
from trek.cli.terminal import echo

if TYPE_CHECKING:
    from trek.client.models import User

roles = click.Choice(["viewer", "editor", "admin"])


@click.group()
def user() -> None:
    """Log in, and manage the users of a master."""


@user.command()
@click.argument("name")
@click.option("--password", prompt=True, hide_input=True, help="The password; prompted for if omitted.")
@json_option
@click.pass_obj
def login(obj: dict[str, Any], name: str, *, password: str, as_json: bool) -> None:
    """Log in as NAME; the login is saved for this master."""
    from trek.client.logins import save_token
    from trek.system.home import trek_home

    with connect(obj) as client:
        token = client.login(name, password)
        save_token(client.url, token.token, home=trek_home())
    render.show_done(f"Logged in as {name} at {client.url}.", as_json=as_json, name=name, url=client.url)


@user.command()
@json_option
@click.pass_obj
def logout(obj: dict[str, Any], *, as_json: bool) -> None:
    """Delete the saved login for this master."""
    from trek.client.logins import save_token
    from trek.system.home import trek_home

    with connect(obj) as client:
        save_token(client.url, None, home=trek_home())
    render.show_done("Logged out.", as_json=as_json, url=client.url)


@user.command()
@json_option
@click.pass_obj
def whoami(obj: dict[str, Any], *, as_json: bool) -> None:
    """Show the user you are logged in as."""
    with connect(obj) as client:
        found = client.whoami()
    if as_json:
        render.show_json(found)
    else:
        echo(f"{found.name} ({found.role})")


@user.command("list")
@listing_options
@click.pass_obj
def list_(obj: dict[str, Any], *, listing: Listing) -> None:
    """List users."""
    with connect(obj) as client:
        found = client.users()
    listing.show(found, row=_row, empty="No users.")


@user.command()
@click.argument("name")
@click.option("--role", type=roles, default="editor", show_default=True, help="What the user is allowed to do.")
@click.option(
    "--password", prompt=True, hide_input=True, confirmation_prompt=True, help="The password; prompted for if omitted."
)
@json_option
@click.pass_obj
def create(obj: dict[str, Any], name: str, *, role: Any, password: str, as_json: bool) -> None:
    """Add a user. Viewers read, editors create experiments and change their own, admins may do anything."""
    with connect(obj) as client:
        client.create_user(name, password=password, role=role)
    render.show_done(f"Created user {name} ({role}).", as_json=as_json, name=name, role=role)


@user.command()
@click.argument("name")
@click.option("--role", type=roles, help="What the user is allowed to do.")
@click.option("--active/--inactive", "is_active", default=None, help="Whether the user may log in.")
@click.option("--password", is_flag=True, help="Prompt for a new password; this revokes all tokens of the user.")
@json_option
@click.pass_obj
def change(
    obj: dict[str, Any], name: str, *, role: str | None, is_active: bool | None, password: bool, as_json: bool
) -> None:
    """Change a user's role or password, or whether the user may log in."""
    with connect(obj) as client:
        passwords = _ask_passwords(is_own=client.whoami().name == name) if password else {}
        found = client.change_user(name, role=role, is_active=is_active, **passwords)
    text = f"{found.name} is {found.role}{'' if found.is_active else ' and cannot log in'}."
    render.show_done(text, as_json=as_json, **found.model_dump(mode="json"))


def _ask_passwords(*, is_own: bool) -> dict[str, str]:
    """The new password, and the current one of whoever changes their own."""
    asked = {}
    if is_own:
        asked["old_password"] = click.prompt("Current password", hide_input=True, default="", show_default=False)
    asked["password"] = click.prompt("New password", hide_input=True, confirmation_prompt=True)
    return asked


def _row(one: User) -> dict[str, Any]:
    return {"name": one.name, "role": one.role, "active": one.is_active, "created": render.ago(one.created_s)}
