"""From a config's searcher block to the Searcher it names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from trek.errors import ConfigError, InputError
from trek.search.base import Searcher
from trek.search.searcher_settings import SearcherSettings
from trek.search.space import Space

_SEARCHERS = {
    "single": "trek.search.single:SingleSearcher",
    "random": "trek.search.random:RandomSearcher",
    "grid": "trek.search.grid:GridSearcher",
    "asha": "trek.search.asha:AshaSearcher",
    "adaptive_asha": "trek.search.asha:AdaptiveAshaSearcher",
    "hyperband": "trek.search.hyperband:HyperbandSearcher",
    "pbt": "trek.search.pbt:PbtSearcher",
    "optuna": "trek.integrations.optuna:OptunaSearcher",
}
_EXTRAS = {"optuna": "optuna"}
"""Searchers that stand on a package of somebody else, and that package."""


def make_searcher(settings: SearcherSettings, *, hyperparameters: Mapping[str, Any], seed: int) -> Searcher:
    """The Searcher that `settings` names, over the space of `hyperparameters`."""
    try:
        space = Space(hyperparameters)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(f"a hyperparameter is wrong: {first['msg']}, got {first['input']!r}.") from None
    searcher: Searcher = _load(settings.name)(settings, space=space, seed=seed)
    return searcher


def _load(name: str) -> Any:
    module, _, attribute = _SEARCHERS[name].partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(name)
        if extra is None or error.name != extra:
            raise
        raise InputError(
            f"searcher {name!r} needs the package {extra}, which is not installed. Run `pip install 'trek[{extra}]'`."
        ) from error
