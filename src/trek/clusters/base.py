"""ClusterSpec: what kind of cluster a user wants, in words of no system, and the base of what writes it down."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from trek.errors import InputError

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class ClusterSpec:
    """Nodes of one kind beside a head, and what runs on them."""

    name: str = "trek"
    nodes: int = 1
    """Beside the head, where a system has a head of its own."""
    max_nodes: int | None = None
    """With autoscaling: up to so many."""
    cpus: int = 4
    gpus: int = 0
    memory_gb: int = 16
    image: str = ""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Storage by name, with the path where it is mounted."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, each with a reference to where its value is; never the value."""
    command: tuple[str, ...] = ()
    """What to run; without one, the cluster waits for work."""
    namespace: str = ""
    partition: str = ""
    time_limit: str = ""
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise InputError(
                f"name must be at most 50 lower-case letters, digits and '-' after a letter, got {self.name!r}."
            )
        for name, least in (("nodes", 1), ("cpus", 1), ("gpus", 0), ("memory_gb", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, got {getattr(self, name)}.")
        if self.max_nodes is not None and self.max_nodes < self.nodes:
            raise InputError(f"max_nodes must be at least nodes ({self.nodes}), got {self.max_nodes}.")
        for variable in self.secrets:
            if _VARIABLE.fullmatch(variable) is None:
                raise InputError(f"{variable!r} is not a valid name of an environment variable.")
        for volume, path in self.volumes.items():
            if not path.startswith("/"):
                raise InputError(f"the path of volume {volume!r} must be absolute, got {path!r}.")


class ClusterRenderer(ABC):
    """Writes a ClusterSpec in the form that one system takes. Without state."""

    settings: frozenset[str]
    """The fields of a ClusterSpec that mean something to the system; the others must have their defaults."""

    @abstractmethod
    def render(self, spec: ClusterSpec) -> str:
        """The text to apply."""

    def check(self, spec: ClusterSpec) -> None:
        """Refuse settings that the system has no word for."""
        default = ClusterSpec()
        for name in ClusterSpec.__dataclass_fields__.keys() - self.settings:
            if getattr(spec, name) != getattr(default, name):
                raise InputError(
                    f"{name} has no meaning for this kind of cluster, got {getattr(spec, name)!r}. Leave it out."
                )
