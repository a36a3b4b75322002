"""What `create`, `fork` and `continue` do with a new experiment: show it, follow it, and end it on Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.terminal import echo
from trek.cli.web import show_page

if TYPE_CHECKING:
    from trek.client.client import Client
    from trek.client.models import ExperimentDetails

KILL_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Following:
    """What to do with a new experiment."""

    is_followed: bool
    detach_on_interrupt: bool
    with_web: bool

    def finish(self, client: Client, created: ExperimentDetails, *, as_json: bool) -> None:
        """Show the new experiment as the options say; returns when it has ended, if it is followed."""
        for warning in created.warnings:
            echo(f"trek: warning: {warning}", err=True)
        echo(f"Created experiment {created.id}", err=as_json)
        if self.with_web:
            show_page(client, f"/experiments/{created.id}", is_opened=None, to_stderr=as_json)
        if self.is_followed:
            follow_experiment(client, created.id, detach_on_interrupt=self.detach_on_interrupt, as_json=as_json)
        elif as_json:
            render.show_json(created)


def following_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of `Following`, which the command gets as `following`."""

    @click.option("--follow/--no-follow", "is_followed", default=True, help="Show logs and progress until the end.")
    @click.option(
        "--detach-on-interrupt", is_flag=True, help="Let Ctrl-C leave the experiment running instead of ending it."
    )
    @click.option("--web", "with_web", is_flag=True, help="Show the experiment on the web page as well.")
    @wraps(command)
    def with_following(
        *args: Any, is_followed: bool, detach_on_interrupt: bool, with_web: bool, **options: Any
    ) -> None:
        command(*args, following=Following(is_followed, detach_on_interrupt, with_web), **options)

    return with_following


def follow_experiment(client: Client, experiment_id: int, *, detach_on_interrupt: bool, as_json: bool) -> None:
    """Show logs and progress until the end; Ctrl-C ends the experiment, or leaves it running, and exits."""
    try:
        from trek.cli.follow import follow, raise_for_end, show_end

        hint = "leaves it running" if detach_on_interrupt else "ends it; use --detach-on-interrupt to leave it running"
        echo(
            f"Following experiment {experiment_id} (Ctrl-C {hint})", err=True
        )  # in this block: Ctrl-C may follow at once
        details = follow(client, experiment_id, to_stderr=as_json)
    except KeyboardInterrupt:
        if detach_on_interrupt:
            echo(f"Still running; come back with `trek experiment follow {experiment_id}`.", err=True)
        else:
            echo(f"Ending experiment {experiment_id} …", err=True)
            kill_experiment(client, experiment_id)
        sys.exit(130)
    if as_json:
        render.show_json(details)
    elif details.state in ("completed", "paused"):
        show_end(client, details)
    raise_for_end(details)


def kill_experiment(client: Client, experiment_id: int) -> ExperimentDetails:
    """Kill it, and wait a while until it has ended."""
    from trek.client.models import ENDED

    details = client.kill_experiment(experiment_id)
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while details.state not in ENDED and time.monotonic() < deadline:
        time.sleep(0.1)
        details = client.experiment(experiment_id)
    return details
