"""The config of a stored experiment, parsed once for all who need it, and the secrets in it."""

from __future__ import annotations

from functools import lru_cache

from pydantic_core import from_json, to_json

from trek.control.tables import ExperimentRow
from trek.errors import ConfigError
from trek.experiments.config import ExperimentConfig
from trek.experiments.masking import secret_values

MAX_CACHED = 256


def parsed_config(row: ExperimentRow) -> ExperimentConfig:
    """The row's config; ConfigError if it cannot be read.

    It is shared between callers and threads, so it must not be changed. The cache is keyed by the text of the config: a
    row whose config was changed is parsed again.
    """
    try:
        return _parse(to_json(row.config))
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:  # what no version since has accepted: invalid Unicode, endless depth
        raise ConfigError(f"the config of experiment {row.id} cannot be read: {type(error).__name__}.") from error


def known_secrets(row: ExperimentRow) -> frozenset[str]:
    """The secret values of the row's config, which are masked in whatever its trials write."""
    return _secrets(to_json(row.config))


@lru_cache(maxsize=MAX_CACHED)
def _secrets(text: bytes) -> frozenset[str]:
    return secret_values(from_json(text))


@lru_cache(maxsize=MAX_CACHED)
def _parse(text: bytes) -> ExperimentConfig:
    return ExperimentConfig.parse(from_json(text))
