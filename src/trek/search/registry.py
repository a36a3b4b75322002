"""From a config's searcher block to the Searcher it names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from trek.search.base import Searcher
from trek.search.settings import SearcherSettings
from trek.search.space import Space

_SEARCHERS = {
    "single": "trek.search.single:SingleSearcher",
}


def make_searcher(settings: SearcherSettings, *, hyperparameters: Mapping[str, Any], seed: int) -> Searcher:
    """The Searcher that `settings` names, over the space of `hyperparameters`."""
    module, _, attribute = _SEARCHERS[settings.name].partition(":")
    searcher: Searcher = getattr(importlib.import_module(module), attribute)(
        settings, space=Space(hyperparameters), seed=seed
    )
    return searcher
