"""Searching hyperparameters: spaces, searchers, and simulating a search without training. No torch, no I/O."""

from trek.search.base import Action, Create, Extend, Finish, Searcher, Stop
from trek.search.registry import make_searcher
from trek.search.simulate import SimulatedTrial, Simulation, preview, simulate
from trek.search.space import Space

__all__ = [
    "Action",
    "Create",
    "Extend",
    "Finish",
    "Searcher",
    "SimulatedTrial",
    "Simulation",
    "Space",
    "Stop",
    "make_searcher",
    "preview",
    "simulate",
]
