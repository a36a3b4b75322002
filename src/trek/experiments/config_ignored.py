"""Settings that configs of other platforms have and that have no effect here.

They are accepted and named in one line each, so that such a config runs unchanged and nobody expects what does not
happen.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

IGNORED: dict[tuple[str, ...], str] = {
    ("bind_mounts",): "trials see the folders of their machine",
    ("data_layer",): "",
    ("debug",): "",
    ("integrations",): "",
    ("internal",): "",
    ("kerberos",): "",
    ("pbs",): "",
    ("preemption_timeout",): "",
    ("project",): "use labels",
    ("security",): "",
    ("slurm",): "",
    ("tensorboard_storage",): "",
    ("unmanaged",): "",
    ("workspace",): "use labels",
    ("checkpoint_storage", "access_key"): "set AWS_ACCESS_KEY_ID in the master's environment",
    ("checkpoint_storage", "account_url"): "",
    ("checkpoint_storage", "checkpoint_path"): "",
    ("checkpoint_storage", "connection_string"): "set AZURE_STORAGE_CONNECTION_STRING in the master's environment",
    ("checkpoint_storage", "credential"): "",
    ("checkpoint_storage", "endpoint_url"): "set AWS_ENDPOINT_URL in the master's environment",
    ("checkpoint_storage", "propagation"): "",
    ("checkpoint_storage", "secret_key"): "set AWS_SECRET_ACCESS_KEY in the master's environment",
    ("checkpoint_storage", "tensorboard_path"): "",
    ("checkpoint_storage", "user"): "",
    ("environment", "add_capabilities"): "",
    ("environment", "drop_capabilities"): "",
    ("environment", "force_pull_image"): "",
    ("environment", "image"): "trials run in the environment of the control plane",
    ("environment", "pod_spec"): "",
    ("environment", "podSpec"): "",
    ("environment", "ports"): "",
    ("environment", "proxy_ports"): "",
    ("environment", "registry_auth"): "",
    ("environment", "runtime"): "",
    ("environment", "runtime_commands"): "",
    ("environment", "runtime_packages"): "",
    ("environment", "slurm"): "",
    ("optimizations", "auto_tune_tensor_fusion"): "",
    ("optimizations", "average_aggregated_gradients"): "gradients are always averaged by sample",
    ("optimizations", "average_training_metrics"): "metrics are always averaged over processes",
    ("optimizations", "gradient_compression"): "",
    ("optimizations", "grad_updates_size_file"): "",
    ("optimizations", "tensor_fusion_cycle_time"): "",
    ("optimizations", "tensor_fusion_threshold"): "",
    ("profiling", "sync_timings"): "",
    ("resources", "agent_label"): "",
    ("resources", "devices"): "",
    ("resources", "is_single_node"): "",
    ("resources", "native_parallel"): "",
    ("resources", "resource_manager"): "",
    ("resources", "resource_pool"): "",
    ("resources", "shm_size"): "",
    ("searcher", "stop_once"): "",
    ("searcher", "train_stragglers"): "",
}
"""The path of each, and what to do or know instead."""


def split_ignored(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """`raw` without the settings that have no effect, and the dotted names of those that were set."""
    kept, dropped = copy.deepcopy(dict(raw)), list[str]()
    for path in IGNORED:
        holder: Any = kept
        for key in path[:-1]:
            holder = holder.get(key) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and path[-1] in holder and holder.pop(path[-1]) is not None:
            dropped.append(".".join(path))
    return kept, dropped


def describe_ignored(dotted: str) -> str:
    """The setting and what to know about it."""
    remedy = IGNORED.get(tuple(dotted.split(".")), "")
    return f"{dotted} ({remedy})" if remedy else dotted
