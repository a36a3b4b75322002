"""Where gangs of processes run. `open_engine("local")` gives the default."""

from trek.engines.base import Engine, Exit, Gang, GangSpec, OutputLine, open_engine
from trek.engines.failure import describe_failure, to_error

__all__ = ["Engine", "Exit", "Gang", "GangSpec", "OutputLine", "describe_failure", "open_engine", "to_error"]
