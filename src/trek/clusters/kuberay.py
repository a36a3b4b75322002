"""KubeRay: a RayCluster that waits for work, or a RayJob that runs a command and ends (`ray.io/v1`)."""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from trek.clusters.base import ClusterRenderer, ClusterSpec
from trek.errors import InputError

_PORTS = [{"containerPort": 6379, "name": "gcs"}, {"containerPort": 8265, "name": "dashboard"}]
_IDLE_S = 300
_USER = 1000  # that of the Dockerfile


class KubeRayRenderer(ClusterRenderer):
    """YAML for `kubectl apply -f -`."""

    settings = frozenset(
        {
            "name",
            "nodes",
            "max_nodes",
            "cpus",
            "gpus",
            "memory_gb",
            "image",
            "volumes",
            "secrets",
            "command",
            "namespace",
        }
    )

    def render(self, spec: ClusterSpec) -> str:
        """One manifest."""
        self.check(spec)
        return str(yaml.safe_dump(manifest(spec), sort_keys=False))


def manifest(spec: ClusterSpec) -> dict[str, Any]:
    """A RayCluster, or with a command a RayJob, as plain data."""
    if not spec.image:
        raise InputError("a cluster of KubeRay needs an image with Trek and Ray. Build one from the Dockerfile.")
    metadata = {"name": spec.name, **({"namespace": spec.namespace} if spec.namespace else {})}
    if not spec.command:
        return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": _cluster(spec)}
    job = {
        "entrypoint": shlex.join(spec.command),
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 600,
        "rayClusterSpec": _cluster(spec),
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": job}


def _cluster(spec: ClusterSpec) -> dict[str, Any]:
    is_elastic = spec.max_nodes is not None
    scaling = {"enableInTreeAutoscaling": True, "autoscalerOptions": {"idleTimeoutSeconds": _IDLE_S}}
    return {
        # Whoever reaches a Ray cluster runs code on it; KubeRay gives its pods a token that all others lack.
        "authOptions": {"mode": "token"},
        **(scaling if is_elastic else {}),
        "headGroupSpec": {
            # Nothing but Ray's own processes runs on the head, so that no step can take its memory.
            "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"},  # noqa: S104 - inside of its pod
            "template": _pod(spec, container="ray-head", gpus=0, ports=_PORTS),
        },
        "workerGroupSpecs": [
            {
                "groupName": "workers",
                "replicas": spec.nodes,
                "minReplicas": spec.nodes,
                "maxReplicas": spec.max_nodes or spec.nodes,
                "rayStartParams": {},
                "template": _pod(spec, container="ray-worker", gpus=spec.gpus),
            }
        ],
    }


def _pod(spec: ClusterSpec, *, container: str, gpus: int, ports: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    amounts: dict[str, Any] = {"cpu": str(spec.cpus), "memory": f"{spec.memory_gb}Gi"}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    mounts = [{"name": name, "mountPath": path} for name, path in spec.volumes.items()]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in spec.volumes]
    one = {
        "name": container,
        "image": spec.image,
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "runAsUser": _USER},
        **({"ports": ports} if ports else {}),
        **({"env": [_secret(name, reference) for name, reference in spec.secrets.items()]} if spec.secrets else {}),
        **({"volumeMounts": mounts} if mounts else {}),
    }
    security = {"securityContext": {"fsGroup": _USER}} if claims else {}
    return {"spec": {"containers": [one], **({"volumes": claims} if claims else {}), **security}}


def _secret(variable: str, reference: str) -> dict[str, Any]:
    name, slash, key = reference.partition("/")
    if not slash or not name or not key:
        raise InputError(
            f"secret {variable!r} must refer to a key of a Secret of Kubernetes, as {variable}=secret/key, "
            f"got {reference!r}. Values are never written into manifests."
        )
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
