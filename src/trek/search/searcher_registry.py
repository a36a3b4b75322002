"""Searchers by name: from a config's searcher block to its settings, and to the Searcher it names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler, SerializeAsAny, TypeAdapter
from pydantic.functional_validators import PlainValidator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from trek.errors import ConfigError
from trek.registry import Registry
from trek.search.base import Searcher
from trek.search.searcher_settings import SearcherSettings
from trek.search.space import Space

SEARCHERS: Registry[type[Searcher]] = Registry(
    "searchers",
    {
        "single": "trek.search.single:SingleSearcher",
        "random": "trek.search.random:RandomSearcher",
        "grid": "trek.search.grid:GridSearcher",
        "asha": "trek.search.asha:AshaSearcher",
        "adaptive_asha": "trek.search.asha:AdaptiveAshaSearcher",
        "hyperband": "trek.search.hyperband:HyperbandSearcher",
        "pbt": "trek.search.pbt:PbtSearcher",
        "optuna": "trek.integrations.optuna:OptunaSearcher",
    },
    word="searcher",
    base="trek.search.base:Searcher",
)


def make_searcher(settings: SearcherSettings, *, hyperparameters: Mapping[str, Any], seed: int) -> Searcher:
    """The Searcher that `settings` names, over the space of `hyperparameters`."""
    space = Space(hyperparameters)
    make: Any = SEARCHERS.load(settings.name)
    searcher: Searcher = make(settings, space=space, seed=seed)
    return searcher


def settings_types() -> dict[str, type[SearcherSettings]]:
    """The settings class of every searcher, by the searcher's name."""
    return {name: SEARCHERS.load(name).settings_type for name in SEARCHERS.in_order()}


def read_settings(raw: Any) -> SearcherSettings:
    """The settings in a searcher block; for pydantic, whose errors it raises."""
    if isinstance(raw, SearcherSettings):
        return raw
    if not isinstance(raw, Mapping):
        raise PydanticCustomError("searcher_block", "it should be a mapping with a name, a metric and a max_length")
    name = raw.get("name")
    if name is None:
        names = ", ".join(SEARCHERS.names())
        raise PydanticCustomError("searcher_name_missing", "{reason}", {"reason": f"Use one of: {names}."})
    try:
        kind = SEARCHERS.load(str(name)).settings_type
    except ConfigError as error:
        raise PydanticCustomError("searcher_name", "{reason}", {"reason": str(error)}) from error
    return kind.model_validate(dict(raw))


class _SchemaOfAny:
    """The JSON Schema: one of the settings of the searchers there are, told apart by name."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        union: Any = reduce(or_, settings_types().values())
        adapter: TypeAdapter[Any] = TypeAdapter(Annotated[union, Field(discriminator="name")])
        return handler(adapter.core_schema)


AnySearcherSettings = Annotated[SerializeAsAny[SearcherSettings], PlainValidator(read_settings), _SchemaOfAny]
"""A field of a config that holds the settings of any searcher, those of other packages included."""
