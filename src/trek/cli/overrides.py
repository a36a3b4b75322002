"""`--config KEY=VALUE`: overrides of a config's settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

overrides_option = click.option(
    "--config", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting; may be repeated."
)


def parse_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """Values by dotted key; a value is read as YAML."""
    from trek.experiments.yaml_source import parse_override

    return dict(parse_override(setting) for setting in overrides)
