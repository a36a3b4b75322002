"""Slurm: a batch script that starts a Ray cluster on the nodes of its job, and a command on the first of them."""

from __future__ import annotations

import re
import shlex

from trek.clusters.base import ClusterRenderer, ClusterSpec
from trek.errors import InputError

_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}")
_WORD = re.compile(r"[\w.,+-]+")


class SlurmRenderer(ClusterRenderer):
    """A script for `sbatch`. Nodes count with the head; the command finds the cluster by RAY_ADDRESS."""

    settings = frozenset(
        {"name", "nodes", "cpus", "gpus", "memory_gb", "secrets", "command", "partition", "time_limit"}
    )

    def render(self, spec: ClusterSpec) -> str:
        """The script."""
        self.check(spec)
        if not spec.command:
            raise InputError("a Slurm job needs a command to run: it ends with it. Add one after `--`.")
        return "\n".join([*_directives(spec), "", "set -euo pipefail", *_secrets(spec), _BODY, _command(spec), ""])


def _directives(spec: ClusterSpec) -> list[str]:
    if spec.time_limit and _TIME.fullmatch(spec.time_limit) is None:
        raise InputError(f"time_limit must be as Slurm writes it, such as 8:00:00 or 1-12, got {spec.time_limit!r}.")
    if spec.partition and _WORD.fullmatch(spec.partition) is None:
        raise InputError(f"{spec.partition!r} is not a valid name of a partition.")
    asked = {
        "job-name": spec.name,
        "nodes": str(spec.nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(spec.cpus),
        "mem": f"{spec.memory_gb}G",
        "gpus-per-node": str(spec.gpus) if spec.gpus else "",
        "partition": spec.partition,
        "time": spec.time_limit,
    }
    return ["#!/bin/bash", *(f"#SBATCH --{name}={value}" for name, value in asked.items() if value)]


def _secrets(spec: ClusterSpec) -> list[str]:
    """Each is read from a file when the job runs."""
    return [f'{name}="$(cat {shlex.quote(path)})"; export {name}' for name, path in spec.secrets.items()]


_BODY = """
# Every node runs one Ray process group; the first node of the job is the head.
head_node="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
head_ip="$(srun --nodes=1 --ntasks=1 --nodelist="$head_node" hostname -I | awk '{print $1}')"
port="$((20000 + SLURM_JOB_ID % 20000))"
export RAY_ADDRESS="$head_ip:$port" RAY_USAGE_STATS_ENABLED=0
# Whoever reaches a Ray cluster runs code on it: the processes of this job know a token, and nobody else does.
RAY_AUTH_TOKEN="$(od -An -tx1 -N32 /dev/urandom | tr -d ' \\n')"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
common=(--num-cpus="$SLURM_CPUS_PER_TASK" --disable-usage-stats --block)
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head_node" \\
  ray start --head --node-ip-address="$head_ip" --port="$port" --include-dashboard=false "${common[@]}" &
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  others="$((SLURM_JOB_NUM_NODES - 1))"
  srun --overlap --nodes="$others" --ntasks="$others" --exclude="$head_node" \\
    ray start --address="$RAY_ADDRESS" "${common[@]}" &
fi
until ray status --address="$RAY_ADDRESS" 2>/dev/null | grep -c '^ [0-9]* node_' | grep -qx "$SLURM_JOB_NUM_NODES"; do
  sleep 2
done
"""


def _command(spec: ClusterSpec) -> str:
    return shlex.join(spec.command)
