"""Services: everything that can be asked of the control plane, one part per noun. None of them knows HTTP."""

from __future__ import annotations

from dataclasses import dataclass

from argon2 import PasswordHasher

from trek.control.accounts import Accounts
from trek.control.checkpoints.checkpoint_service import CheckpointService
from trek.control.checkpoints.model_registry import ModelRegistry
from trek.control.checkpoints.trial_checkpoints import TrialCheckpoints
from trek.control.cluster_service import ClusterService
from trek.control.experiments.archives import Archives
from trek.control.experiments.code_browser import CodeBrowser
from trek.control.experiments.experiment_service import ExperimentService
from trek.control.experiments.templates import Templates
from trek.control.flows.flow_service import FlowService
from trek.control.layout import Layout
from trek.control.logs.log_service import LogService
from trek.control.metrics.curve_service import CurveService
from trek.control.store import Store
from trek.control.trials.artifacts import ArtifactService
from trek.control.trials.trial_runner import TrialRunner
from trek.control.trials.trial_service import TrialService
from trek.system.clock import Clock


@dataclass(frozen=True)
class Services:
    """The parts that routes and tests call."""

    accounts: Accounts
    archives: Archives
    artifacts: ArtifactService
    checkpoints: CheckpointService
    cluster: ClusterService
    code: CodeBrowser
    curves: CurveService
    experiments: ExperimentService
    flows: FlowService
    logs: LogService
    models: ModelRegistry
    templates: Templates
    trial_checkpoints: TrialCheckpoints
    trials: TrialService

    @classmethod
    def over(
        cls,
        store: Store,
        *,
        layout: Layout,
        runner: TrialRunner,
        clock: Clock,
        hasher: PasswordHasher | None = None,
    ) -> Services:
        """All services over one store. For `hasher` see `Accounts`."""
        archives = Archives(store, folder=layout.archives, clock=clock)
        return cls(
            accounts=Accounts(store, clock=clock, hasher=hasher),
            archives=archives,
            artifacts=ArtifactService(store, layout=layout),
            checkpoints=CheckpointService(store, layout=layout),
            cluster=ClusterService(store, runner=runner),
            code=CodeBrowser(store, archives=archives),
            curves=CurveService(store),
            experiments=ExperimentService(store, archives=archives, layout=layout, runner=runner, clock=clock),
            flows=FlowService(store, home=layout.home, clock=clock),
            logs=LogService(store),
            models=ModelRegistry(store, clock=clock),
            templates=Templates(store, clock=clock),
            trial_checkpoints=TrialCheckpoints(store, layout=layout),
            trials=TrialService(store, layout=layout, runner=runner, clock=clock),
        )
