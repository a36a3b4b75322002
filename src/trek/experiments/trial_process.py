"""TrialProcess: the run of a trial that a process belongs to, and how it reaches its control plane. Loads no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trek.client.client import Address, Client
from trek.client.models import Assignment, Report
from trek.engines.member_folder import NO_SHARED_DISK, MemberFolder
from trek.errors import InputError, MasterUnreachable
from trek.experiments.config import ExperimentConfig
from trek.experiments.gpu_metrics import GpuMeter, find_nvml
from trek.experiments.reporting import ControlPlaneLogger
from trek.experiments.system_metrics import SystemReporter
from trek.train.loggers.base import ArtifactRow
from trek.train.loop.stopping import StopRequest
from trek.world import World

RESTART_TIMEOUT_S = 120.0
"""How long a process waits at its start for a control plane that is being restarted."""
MASTER_URL = "master.url"
"""The file in a process's folder that holds the URL of the control plane, and nothing else: each one that starts and
finds the process puts it there."""
T = TypeVar("T")


@dataclass(frozen=True)
class TrialProcess:
    """What the supervisor sets in the environment of a trial's process."""

    trial_id: int
    run: int
    run_folder: Path
    """Shared by the processes of the run on one machine."""
    folder: MemberFolder
    """The folder of this process alone."""
    address: Address
    visible_gpus: str | None = None
    """As in CUDA_VISIBLE_DEVICES; None for all of the machine."""
    shares_disk: bool = True
    """Whether the folders of the control plane are this machine's too."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> TrialProcess:
        """Read the variables set by the supervisor."""
        try:
            return cls(
                trial_id=int(environ["TREK_TRIAL_ID"]),
                run=int(environ["TREK_RUN"]),
                run_folder=Path(environ["TREK_RUN_DIR"]),
                folder=MemberFolder.from_env(environ),
                address=Address(environ["TREK_MASTER"], environ.get("TREK_TOKEN", "")),
                visible_gpus=environ.get("CUDA_VISIBLE_DEVICES"),
                shares_disk=environ.get(NO_SHARED_DISK) != "1",
            )
        except KeyError as error:
            raise InputError(f"{error.args[0]} is not set. The process of a trial must be started by Trek.") from None

    @property
    def code(self) -> Path:
        """Where the model folder is unpacked."""
        return self.run_folder / "code"

    def open_client(self) -> Client:
        """A client that finds the control plane again after a restart."""
        return Client(self.address, relocate=self._relocated)

    def assignment(self, client: Client) -> Assignment:
        """What to train."""
        return retry_until_reachable(lambda: client.assignment(self.trial_id, run=self.run))

    def open_logger(self, client: Client, *, config: ExperimentConfig, stop: StopRequest) -> ControlPlaneLogger:
        """The logger through which the leader reports to the control plane and receives stop requests."""

        def send(report: Report) -> Any:
            return client.report(self.trial_id, report)

        def upload(row: ArtifactRow) -> None:
            client.put_artifact(self.trial_id, row.name, Path(row.path).read_bytes(), run=self.run)

        return ControlPlaneLogger(
            send,
            upload=upload,
            run=self.run,
            folder=self.folder.path,
            stop=stop,
            awaits_decisions=config.searcher.is_search,
        )

    def open_system_reporter(
        self, client: Client, *, world: World, waited_s: Callable[[], float] | None = None
    ) -> SystemReporter:
        """What reports the use that the process and its children make of the machine, and the waits for data."""
        return SystemReporter(
            lambda report: client.report(self.trial_id, report),
            run=self.run,
            rank=world.rank,
            gpu=GpuMeter(find_nvml(), visible=self.visible_gpus, local_rank=world.local_rank),
            waited_s=waited_s,
        )

    def _relocated(self) -> Address | None:
        """The address of a restarted control plane, which may have changed; the trial's token stays valid."""
        url = (self.folder.read(MASTER_URL) or b"").decode().strip()
        return Address(url, self.address.token) if url else None


def retry_until_reachable(ask: Callable[[], T], *, patience_s: float = RESTART_TIMEOUT_S) -> T:
    """The result of `ask`, retried while the control plane is unreachable."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except MasterUnreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
