"""TrainOptions: the options of `elasticdl train` about how to train, as settings of `trek.fit`. Decides, does no I/O.

ElasticDL trains synchronously unless it is told `--use_async`: a gradient computed from parameters that are more
than `--sync_version_tolerance` versions old is rejected, and its batch is computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trek
from trek.errors import ConfigError

LOCAL, ALLREDUCE, SERVERS = "Local", "AllreduceStrategy", "ParameterServerStrategy"
STRATEGIES = {LOCAL: None, ALLREDUCE: "ddp", SERVERS: "ps"}


@dataclass(frozen=True)
class TrainOptions:
    """Options by their names there."""

    minibatch_size: int = 64
    """Samples of a batch of one worker."""
    num_epochs: int = 1
    num_workers: int = 1
    num_ps_pods: int = 0
    distribution_strategy: str | None = None
    """By default what the numbers of workers and servers need."""
    use_async: bool = False
    lr_staleness_modulation: bool = False
    grads_to_wait: int = 1
    sync_version_tolerance: int = 0
    get_model_steps: int = 1
    evaluation_steps: int = 0
    checkpoint_steps: int = 0
    keep_checkpoint_max: int | None = None
    """0 keeps all."""
    log_loss_steps: int | None = None
    checkpoint_dir: str | None = None
    job_name: str = "elasticdl"

    def fit_settings(self) -> dict[str, Any]:
        """Keyword arguments of `trek.fit`."""
        chosen = self._strategy()
        periods = {"validation_period": self.evaluation_steps, "checkpoint_period": self.checkpoint_steps}
        return {
            "max_length": trek.epochs(self.num_epochs),
            "workers": self.num_workers,
            "strategy": STRATEGIES[chosen],
            "servers": max(self.num_ps_pods, 1) if chosen == SERVERS else 0,
            "strategy_options": self._server_options() if chosen == SERVERS else {},
            "name": self.job_name,
            "checkpoint_dir": self.checkpoint_dir,
            **{name: trek.batches(steps) for name, steps in periods.items() if steps},
            **self._kept(),
            **({"report_period": self.log_loss_steps} if self.log_loss_steps else {}),
        }

    @property
    def global_batch_size(self) -> int:
        """Samples of a batch of all workers."""
        return self.minibatch_size * self.num_workers

    def _strategy(self) -> str:
        needed = SERVERS if self.num_ps_pods else ALLREDUCE if self.num_workers > 1 else LOCAL
        chosen = self.distribution_strategy or needed
        if chosen == LOCAL and needed != LOCAL:
            raise ConfigError(
                f"--distribution_strategy Local trains in one process, got --num_workers {self.num_workers} and "
                f"--num_ps_pods {self.num_ps_pods}. Use {needed}."
            )
        if chosen == ALLREDUCE and self.num_ps_pods:
            raise ConfigError(
                f"--distribution_strategy {ALLREDUCE} has no servers, got --num_ps_pods {self.num_ps_pods}. "
                f"Use {SERVERS}."
            )
        return chosen

    def _server_options(self) -> dict[str, Any]:
        pulled = {"pull_period": self.get_model_steps}
        if self.use_async:
            return {"mode": "async", "scale_lr_by_staleness": self.lr_staleness_modulation, **pulled}
        tolerance = self.sync_version_tolerance
        return {"mode": "async", "grads_to_wait": self.grads_to_wait, "version_tolerance": tolerance, **pulled}

    def _kept(self) -> Mapping[str, int]:
        if self.keep_checkpoint_max is None:
            return {}
        return {"keep_last": self.keep_checkpoint_max} if self.keep_checkpoint_max else {"keep_every": 1}
