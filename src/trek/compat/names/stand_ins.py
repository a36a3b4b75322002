"""StandIn: modules of third parties that scripts of another project need, and that are rarely installed as needed."""

from __future__ import annotations

from dataclasses import dataclass

from trek.compat.names.module_names import ModuleNames
from trek.compat.names.twister2 import DISTRIBUTED

_TWISTER2 = frozenset({"twister2", "twister2deepnet"})


@dataclass(frozen=True)
class StandIn:
    """What stands in for a module, in scripts that import one of some packages."""

    module: ModuleNames
    packages: frozenset[str]
    text: str | None = None
    """Only in scripts with this text as a value."""


STAND_INS = (
    StandIn(ModuleNames("mpi4py", "trek.compat.mpi4py", {"MPI": "trek.World"}), _TWISTER2),
    # torch is rarely built with its backend `mpi`.
    StandIn(
        ModuleNames("torch.distributed", "trek.compat.twister2deepnet.deepnet.torch.distributed", DISTRIBUTED),
        _TWISTER2,
        text="mpi",
    ),
)
