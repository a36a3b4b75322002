"""`pq.args`: the name that pytorch-quik's README uses for `pq.arg`."""

from __future__ import annotations

from trek.compat.pytorch_quik.arg import (
    add_ddp_args,
    add_learn_args,
    add_mlflow_args,
    add_ray_tune_args,
    beta_type,
    update_args,
)

__all__ = ["add_ddp_args", "add_learn_args", "add_mlflow_args", "add_ray_tune_args", "beta_type", "update_args"]
