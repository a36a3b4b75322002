"""Machines that ssh reaches: a hostfile, which `trek launch --hostfile` and the hostfile= of flows take."""

from __future__ import annotations

import re

from trek.clusters.base import ClusterRenderer, ClusterSpec
from trek.errors import InputError

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.\-]*[A-Za-z0-9])?")


class SshRenderer(ClusterRenderer):
    """A line for each host: as many slots as it has GPUs, or CPUs where it has none."""

    settings = frozenset({"cpus", "gpus", "hosts"})

    def render(self, spec: ClusterSpec) -> str:
        """The hostfile."""
        self.check(spec)
        if not spec.hosts:
            raise InputError("a hostfile needs at least one host. Add --host NAME for each.")
        for host in spec.hosts:
            if _HOST.fullmatch(host) is None:
                raise InputError(f"{host!r} is not a valid name of a host.")
        return "".join(f"{host} slots={spec.gpus or spec.cpus}\n" for host in spec.hosts)
