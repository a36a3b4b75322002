"""Where gangs of processes run. `open_engine("local")` gives the default."""

from trek.engines.base import (
    ENGINES,
    WORKER,
    Engine,
    Exit,
    Gang,
    GangSpec,
    Handle,
    LogLine,
    Node,
    OsUser,
    OutputLine,
    Placement,
    Role,
    open_engine,
)
from trek.engines.failure import describe_failure, to_error

__all__ = [
    "ENGINES",
    "WORKER",
    "Engine",
    "Exit",
    "Gang",
    "GangSpec",
    "Handle",
    "LogLine",
    "Node",
    "OsUser",
    "OutputLine",
    "Placement",
    "Role",
    "describe_failure",
    "open_engine",
    "to_error",
]
