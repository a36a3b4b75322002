"""What can be asked of the control plane. Routes and tests call these; none of them knows HTTP."""

from __future__ import annotations

from trek.control.checkpoints.checkpoint_services import CheckpointServices
from trek.control.cluster_services import ClusterServices
from trek.control.experiments.experiment_services import ExperimentServices
from trek.control.flows.flow_services import FlowServices
from trek.control.trials.trial_services import TrialServices


class Services(ExperimentServices, TrialServices, CheckpointServices, ClusterServices, FlowServices):
    """The control plane's verbs: one class for callers, one file for every noun."""
