"""What a user applies to get a cluster: manifests of KubeRay, a script of Slurm, a hostfile. Only writes text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek.registry import Registry

if TYPE_CHECKING:
    from trek.clusters.base import ClusterRenderer

RENDERERS: Registry[type[ClusterRenderer]] = Registry(
    "clusters",
    {
        "kuberay": "trek.clusters.kuberay:KubeRayRenderer",
        "slurm": "trek.clusters.slurm:SlurmRenderer",
        "ssh": "trek.clusters.ssh:SshRenderer",
    },
    word="kind of cluster",
    base="trek.clusters.base:ClusterRenderer",
)

__all__ = ["RENDERERS"]
