"""A Ray cluster of this machine with a real autoscaler: it starts raylets when there is demand, and ends idle ones.

Ray's own `AutoscalingCluster` ends every other cluster of the machine when it starts, so the head is started here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trek.engines.free_port import find_free_port
from trek.testing.ray_cluster import STORE_BYTES, RayHead

_HEAD_ID = "f" * 51 + "00000"
"""Ray's provider of nodes on one machine knows the head by this id."""
_HEAD_TYPE = "ray.head.default"


def autoscaling_head(
    folder: Path, *, cpus: int, worker: dict[str, float], max_workers: int, idle_s: float, is_v2: bool
) -> RayHead:
    """A head with `cpus`, not started yet, whose autoscaler adds up to `max_workers` nodes with `worker`'s resources.

    `idle_s` is how long a node without work is kept. `is_v2` chooses the newer one of Ray's two autoscalers.
    """
    port = find_free_port()
    head = {"resources": {"CPU": cpus}, "node_config": {}, "max_workers": 0}
    kind = {"resources": {**worker, "object_store_memory": STORE_BYTES}, "node_config": {}, "max_workers": max_workers}
    config = {
        **_EMPTY,
        "max_workers": max_workers,
        "idle_timeout_minutes": idle_s / 60,
        "provider": {**_PROVIDER, "gcs_address": f"127.0.0.2:{port}", "launch_multiple": is_v2},
        "head_node_type": _HEAD_TYPE,
        "available_node_types": {_HEAD_TYPE: head, "worker": {**kind, "min_workers": 0}},
    }
    path = folder / "autoscaling.json"
    path.write_text(json.dumps(config))
    variables = {**_VARIABLES, "RAY_enable_autoscaler_v2": str(int(is_v2))}
    return RayHead(port=port, cpus=cpus, options=[f"--autoscaling-config={path}"], variables=variables)


_VARIABLES = {
    "RAY_FAKE_CLUSTER": "1",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD_ID,
    "RAY_CLOUD_INSTANCE_ID": _HEAD_ID,
}
_PROVIDER = {
    "type": "external",
    "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
    "head_node_id": _HEAD_ID,
    "disable_node_updaters": True,  # nobody logs in to a node to set it up
    "use_node_id_as_ip": True,  # all nodes have one address
}
"""Ray's provider of nodes that are processes of one machine."""
_EMPTY: dict[str, Any] = {
    **{name: {} for name in ("auth", "head_node", "worker_nodes", "file_mounts")},
    **{
        name: []
        for name in (
            "cluster_synced_files",
            "rsync_exclude",
            "rsync_filter",
            "initialization_commands",
            "setup_commands",
            "head_setup_commands",
            "worker_setup_commands",
            "head_start_ray_commands",
            "worker_start_ray_commands",
        )
    },
    "cluster_name": "trek-test",
    "file_mounts_sync_continuously": False,
    "upscaling_speed": 100.0,
}
"""What Ray demands of the config of a cluster, whether the provider of nodes uses it or not."""
