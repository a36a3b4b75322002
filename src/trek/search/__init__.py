"""Searching hyperparameters: spaces, searchers, and simulating a search without training. No torch, no I/O."""

from trek.search.base import Action, Create, Extend, Finish, Searcher, Stop
from trek.search.pool import PoolSearcher
from trek.search.searcher_registry import make_searcher
from trek.search.searcher_settings import LengthSetting, SearcherSettings
from trek.search.simulate import SimulatedTrial, Simulation, preview, simulate
from trek.search.space import Categorical, Const, Double, Int, Log, Parameter, Space

__all__ = [
    "Action",
    "Categorical",
    "Const",
    "Create",
    "Double",
    "Extend",
    "Finish",
    "Int",
    "LengthSetting",
    "Log",
    "Parameter",
    "PoolSearcher",
    "Searcher",
    "SearcherSettings",
    "SimulatedTrial",
    "Simulation",
    "Space",
    "Stop",
    "make_searcher",
    "preview",
    "simulate",
]
