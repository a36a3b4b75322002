"""Where gangs of processes run. `open_engine("local")` gives the default."""

from trek.engines.base import Engine, Exit, Gang, GangSpec, OutputLine, open_engine

__all__ = ["Engine", "Exit", "Gang", "GangSpec", "OutputLine", "open_engine"]
