"""`python -m trek.master.daemon`: the control plane that commands start in the background."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from pathlib import Path

import click

from trek.engines.option_words import read_engine_options
from trek.errors import TrekError
from trek.master.control_plane import ControlPlane, MasterSettings
from trek.system.leaving import run_and_leave

IDLE_S = 30.0
PATIENCE_S = 30.0


@click.command()
@click.option("--home", type=click.Path(path_type=Path), required=True)
@click.option("--engine")
def main(home: Path, engine: str | None) -> None:
    """Serve the home's control plane until there is nothing left to do."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    slots = os.environ.get("TREK_SLOTS")
    max_log_mb = os.environ.get("TREK_MAX_LOG_MB")
    settings = MasterSettings(
        home=home,
        idle_s=float(os.environ.get("TREK_IDLE_S") or IDLE_S),
        slots=int(slots) if slots else None,
        engine=os.environ.get("TREK_ENGINE") or engine,
        engine_options=read_engine_options(shlex.split(os.environ.get("TREK_ENGINE_OPTIONS") or "")),
        max_log_mb=float(max_log_mb) if max_log_mb else MasterSettings.max_log_mb,
        patience_s=PATIENCE_S,
    )
    try:
        ControlPlane(settings).serve()
    except TrekError as error:
        click.echo(f"trek: error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    run_and_leave(main)
