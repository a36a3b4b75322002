"""TrialSpecs: what the gang of a trial's run is started with: its command, variables, folders, devices and servers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from trek.control.experiments.parsed_config import parsed_config
from trek.control.layout import Layout
from trek.control.tables import ExperimentRow, TrialRow
from trek.control.trials.cluster_view import ClusterView
from trek.control.trials.trial_user import make_folders, make_own_home
from trek.engines import GangSpec, OsUser
from trek.experiments.trial_process import MASTER_URL
from trek.train.jobs.job import TRAINING_IMPORTS
from trek.train.jobs.servers import server_roles

TRIAL_IMPORTS = (*TRAINING_IMPORTS, "trek.experiments.entrypoint", "trek.experiments.trial_settings", "httpcore")


class TrialSpecs:
    """See the module. `environment(trial, run)` gives the variables its processes need to reach the control plane.

    Of the control plane's own, its user's trials inherit all but the private ones, and those of others the shared ones.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        cluster: ClusterView,
        environment: Callable[[int, int], dict[str, str]],
        command: Sequence[str],
        private_variables: Collection[str],
        shared_variables: Collection[str],
    ) -> None:
        self._layout = layout
        self._cluster = cluster
        self._environment = environment
        self._command = command
        self._private_variables = private_variables
        self._shared_variables = shared_variables

    def spec(self, experiment: ExperimentRow, trial: TrialRow) -> GangSpec:
        """The gang of the trial's current run; makes the folders that it writes to."""
        user = None if (run_as := self._layout.run_as) is None else run_as.user_of(experiment.owner)
        folder = self._layout.run(trial)
        folder.mkdir(parents=True, exist_ok=True)
        if user is not None:
            make_folders(self._layout, trial, user=user)
        work = self._layout.writable(trial, is_other_user=user is not None)
        return GangSpec(
            command=self._command,
            num_workers=len(trial.slots),
            env=self._variables(experiment, trial, user=user),
            unset=self._private_variables,
            inherits=self._shared_variables if user is not None else None,
            user=user,
            cwd=work,
            output_dir=folder,
            waits_for_machines=True,
            files={MASTER_URL: self.url(trial)},
            slots=trial.slots if self._cluster.has_gpus else (),
            gpus_per_worker=1 if self._cluster.has_gpus else 0,
            # A command may do without torch.
            imports=() if parsed_config(experiment).command else TRIAL_IMPORTS,
            roles=server_roles(parsed_config(experiment).resources.servers, folder=work / "servers"),
        )

    def url(self, trial: TrialRow) -> bytes:
        """Where the control plane listens now: after a restart, its port may differ."""
        return self._environment(trial.id, trial.run).get("TREK_MASTER", "").encode()

    def handle_file(self, trial: TrialRow) -> Path:
        """What the gang of the trial's current run is found again by."""
        return self._layout.run(trial) / "gang.json"

    def _variables(self, experiment: ExperimentRow, trial: TrialRow, *, user: OsUser | None) -> dict[str, str]:
        variables = dict(experiment.config["environment"]["environment_variables"])
        run_dir = self._layout.writable(trial, is_other_user=user is not None)
        if user is None:
            home = make_own_home(self._layout)
        else:
            home = self._layout.user_homes / user.name
            variables |= {"HOME": str(home), "USER": user.name, "LOGNAME": user.name}
        if not self._cluster.has_gpus:
            variables.setdefault("OMP_NUM_THREADS", "1")
        return {
            **variables,
            **self._environment(trial.id, trial.run),
            "TREK_HOME": str(home),
            "TREK_TRIAL_ID": str(trial.id),
            "TREK_RUN": str(trial.run),
            "TREK_RUN_DIR": str(run_dir),
        }
