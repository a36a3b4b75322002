"""`determined.experimental.client`: functions of one master, and the same as the class Determined.

Over `trek.Experiment`, `trek.Checkpoint` and `trek.Client`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trek
from trek.errors import InputError, NotFound

if TYPE_CHECKING:
    import torch
    from torch import nn

_ACTIVE = ("queued", "running")


class ExperimentState(Enum):
    """Determined's states."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    CANCELED = "CANCELED"


_STATES = {
    "queued": ExperimentState.ACTIVE,
    "running": ExperimentState.ACTIVE,
    "paused": ExperimentState.PAUSED,
    "completed": ExperimentState.COMPLETED,
    "errored": ExperimentState.ERROR,
    "killed": ExperimentState.CANCELED,
}


class Checkpoint:
    """One checkpoint of a trial."""

    def __init__(self, uuid: str, client: trek.Client) -> None:
        self._client = client
        found = client.checkpoint(uuid)
        self.uuid = found.uuid
        self.experiment_id = found.experiment_id
        self.trial_id = found.trial_id
        self.batches = found.batches
        self.validation_metrics = dict(found.metrics)

    @property
    def metadata(self) -> dict[str, Any]:
        """How far the training was."""
        return {"steps_completed": self.batches}

    def download(self, path: Path | str | None = None) -> str:
        """Copy the files to a folder, by default `checkpoints/UUID`; returns it."""
        target = Path(path) if path is not None else Path("checkpoints") / self.uuid
        self._client.download_checkpoint(self.uuid, target)
        return str(target)

    def load(
        self, path: Path | str | None = None, *, trust_code: bool = False, map_location: torch.device | str = "cpu"
    ) -> nn.Module:
        """The trained model on `map_location`; `trust_code` allows running the code of the experiment that wrote it.

        With `path`, the files are copied there too.
        """
        if path is not None:
            self.download(path)
        return trek.Checkpoint(self.uuid, client=self._client).load(trust_code=trust_code).to(map_location)

    def delete(self) -> None:
        """Delete its files."""
        self._client.delete_checkpoint(self.uuid)


class Trial:
    """One trial."""

    def __init__(self, trial_id: int, client: trek.Client) -> None:
        self._client = client
        found = client.trial(trial_id)
        self.id = self.trial_id = found.id
        self.experiment_id = found.experiment_id
        self.hparams = found.hparams
        self.state = _STATES[found.state]

    def kill(self) -> None:
        """End it."""
        self._client.kill_trial(self.id)

    def logs(self) -> Iterator[str]:
        """Its log lines."""
        return (line.text + "\n" for line in self._client.trial_logs(self.id))

    def list_checkpoints(self, sort_by: str | None = None) -> list[Checkpoint]:
        """Its checkpoints, the newest first; those with the metric `sort_by`, the smallest first."""
        if sort_by is not None:
            return _sorted(self._client, self.experiment_id, metric=sort_by, smaller_is_better=True, trial_id=self.id)
        found = [one for one in self._client.checkpoints(trial_id=self.id) if not one.is_deleted]
        newest = sorted(found, key=lambda one: one.batches, reverse=True)
        return [Checkpoint(one.uuid, self._client) for one in newest]

    get_checkpoints = list_checkpoints

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: str | None = None,
        sort_by: str | None = None,
        smaller_is_better: bool | None = None,
    ) -> Checkpoint:
        """Its latest checkpoint, the best one, or the one with this uuid: exactly one of them.

        The best is that of the searcher's metric, or of the metric `sort_by`.
        """
        if (sort_by is not None or smaller_is_better is not None) and not best:
            raise InputError("select_checkpoint takes sort_by and smaller_is_better only with best=True.")
        _check_order(sort_by, smaller_is_better)
        if [latest, best, uuid is not None].count(True) != 1:
            raise InputError("select_checkpoint needs exactly one of latest, best and uuid.")
        if uuid is not None:
            return Checkpoint(uuid, self._client)
        if latest:
            found = self.list_checkpoints()
        else:
            found = _sorted(
                self._client,
                self.experiment_id,
                metric=sort_by,
                smaller_is_better=smaller_is_better,
                trial_id=self.id,
            )
        if not found:
            raise NotFound(f"trial {self.id} has no checkpoint{f' with the metric {sort_by!r}' if sort_by else ''}.")
        return found[0]

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """The checkpoint with the best metric: the searcher's, or `sort_by`."""
        return self.select_checkpoint(best=True, sort_by=sort_by, smaller_is_better=smaller_is_better)

    def iter_metrics(self, group: str) -> Iterator[Any]:
        """The reported rows of one group: `batches`, `metrics`, …"""
        return iter(self._client.trial_metrics(self.id, group=group))


class Experiment:
    """One experiment."""

    def __init__(self, found: trek.Experiment, client: trek.Client) -> None:
        self._client = client
        self._experiment = found
        self.id = found.id

    @property
    def name(self) -> str:
        """Its name."""
        return self._experiment.details.name

    @property
    def config(self) -> dict[str, Any]:
        """Its config, in Trek's normal form."""
        return dict(self._experiment.details.config)

    def get_config(self) -> dict[str, Any]:
        """Its config, in Trek's normal form."""
        return self.config

    @property
    def state(self) -> ExperimentState:
        """Its current state."""
        return _STATES[self._experiment.state]

    def wait(self, interval: float = 5.0) -> ExperimentState:
        """Wait until it has ended or is paused; returns its state, also if it failed."""
        while (state := self._experiment.state) in _ACTIVE:
            time.sleep(interval)
        return _STATES[state]

    wait_till_complete = wait

    def kill(self) -> None:
        """End it."""
        self._experiment.kill()

    cancel = kill

    def pause(self) -> None:
        """Pause it."""
        self._experiment.pause()

    def activate(self) -> None:
        """Resume it after a pause."""
        self._experiment.activate()

    def archive(self) -> None:
        """Hide it in lists."""
        self._client.change_experiment(self.id, is_archived=True)

    def unarchive(self) -> None:
        """Show it in lists again."""
        self._client.change_experiment(self.id, is_archived=False)

    def delete(self) -> None:
        """Delete it, with its checkpoints."""
        self._client.delete_experiment(self.id)

    def list_trials(self) -> list[Trial]:
        """Its trials, in the order they were created."""
        return [Trial(one.id, self._client) for one in self._experiment.trials]

    get_trials = list_trials

    def list_checkpoints(self, max_results: int | None = None) -> list[Checkpoint]:
        """Its checkpoints, the best first."""
        return _sorted(self._client, self.id)[:max_results]

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """The checkpoint with the best metric: the searcher's, or `sort_by`."""
        _check_order(sort_by, smaller_is_better)
        if sort_by is None:
            return Checkpoint(self._client.best_checkpoint(self.id).uuid, self._client)
        return self.top_n_checkpoints(1, sort_by=sort_by, smaller_is_better=smaller_is_better)[0]

    def top_n_checkpoints(
        self, limit: int, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> list[Checkpoint]:
        """The best checkpoints, the best first."""
        _check_order(sort_by, smaller_is_better)
        found = _sorted(self._client, self.id, metric=sort_by, smaller_is_better=smaller_is_better)
        if not found:
            raise NotFound(f"experiment {self.id} has no checkpoint with the metric {sort_by!r}.")
        return found[:limit]


class ModelVersion:
    """One registered checkpoint of a model."""

    def __init__(self, version: int, checkpoint: Checkpoint) -> None:
        self.model_version = self.version = version
        self.checkpoint = checkpoint


class Model:
    """A registered model."""

    def __init__(self, name: str, client: trek.Client) -> None:
        self._client = client
        self.name = client.registered_model(name).name

    def register_version(self, checkpoint_uuid: str) -> ModelVersion:
        """Register a checkpoint as the next version."""
        self._client.register_version(self.name, checkpoint=checkpoint_uuid)
        return self._latest()

    def get_version(self, version: int = -1) -> ModelVersion | None:
        """A version, by default the newest; None if there is none."""
        found = self._client.registered_model(self.name).versions
        if version == -1:
            return self._latest() if found else None
        one = next((one for one in found if one.number == version), None)
        return ModelVersion(one.number, Checkpoint(one.checkpoint, self._client)) if one else None

    def delete(self) -> None:
        """Delete the model, not its checkpoints."""
        self._client.delete_model(self.name)

    def _latest(self) -> ModelVersion:
        newest = max(self._client.registered_model(self.name).versions, key=lambda one: one.number)
        return ModelVersion(newest.number, Checkpoint(newest.checkpoint, self._client))


class Determined:
    """One master: `trek.Client`, by default the one that commands use."""

    def __init__(self, master: str | None = None, user: str | None = None, password: str | None = None) -> None:
        self._client = trek.Client(master)
        if user is not None:
            self._client.login(user, password or "")

    def create_experiment(
        self,
        config: Mapping[str, Any] | Path | str,
        model_dir: Path | str = ".",
        includes: Sequence[Path | str] | None = None,
        template: str | None = None,
    ) -> Experiment:
        """Create an experiment, which starts at once. All its code is in `model_dir`."""
        if includes:
            raise InputError(f"includes is not supported, got {list(includes)}. Put these files into model_dir.")
        found = trek.Experiment(config, model_dir, template=template, client=self._client)
        return Experiment(found, self._client)

    def get_experiment(self, experiment_id: int) -> Experiment:
        """The experiment with this id."""
        return Experiment(trek.Experiment.get(experiment_id, client=self._client), self._client)

    def list_experiments(self) -> list[Experiment]:
        """All experiments, the newest first."""
        return [self.get_experiment(one.id) for one in self._client.experiments()]

    def get_trial(self, trial_id: int) -> Trial:
        """The trial with this id."""
        return Trial(trial_id, self._client)

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        """The checkpoint with this uuid."""
        return Checkpoint(uuid, self._client)

    def create_model(self, name: str, description: str | None = "") -> Model:
        """Register a new model."""
        self._client.create_model(name, description=description or "")
        return Model(name, self._client)

    def get_model(self, identifier: str) -> Model:
        """The model with this name."""
        return Model(identifier, self._client)

    def get_models(self) -> list[Model]:
        """All models."""
        return [Model(one.name, self._client) for one in self._client.registered_models()]

    list_models = get_models

    def logout(self) -> None:
        """Close the connections."""
        self._client.close()


_chosen: Determined | None = None


def login(master: str | None = None, user: str | None = None, password: str | None = None) -> None:
    """Choose the master for the functions of this module."""
    global _chosen
    _chosen = Determined(master, user, password)


def _master() -> Determined:
    if _chosen is None:
        login()
    assert _chosen is not None
    return _chosen


def create_experiment(
    config: Mapping[str, Any] | Path | str,
    model_dir: Path | str = ".",
    includes: Sequence[Path | str] | None = None,
    template: str | None = None,
) -> Experiment:
    """Create an experiment, which starts at once. All its code is in `model_dir`."""
    return _master().create_experiment(config, model_dir, includes, template)


def get_experiment(experiment_id: int) -> Experiment:
    """The experiment with this id."""
    return _master().get_experiment(experiment_id)


def list_experiments() -> list[Experiment]:
    """All experiments, the newest first."""
    return _master().list_experiments()


def get_trial(trial_id: int) -> Trial:
    """The trial with this id."""
    return _master().get_trial(trial_id)


def get_checkpoint(uuid: str) -> Checkpoint:
    """The checkpoint with this uuid."""
    return _master().get_checkpoint(uuid)


def create_model(name: str, description: str | None = "") -> Model:
    """Register a new model."""
    return _master().create_model(name, description)


def get_model(identifier: str) -> Model:
    """The model with this name."""
    return _master().get_model(identifier)


def get_models() -> list[Model]:
    """All models."""
    return _master().get_models()


list_models = get_models


def logout() -> None:
    """Close the connections; the next call opens them again."""
    global _chosen
    if _chosen is not None:
        _chosen.logout()
        _chosen = None


def _check_order(sort_by: str | None, smaller_is_better: bool | None) -> None:
    if (sort_by is None) != (smaller_is_better is None):
        raise InputError(
            f"sort_by and smaller_is_better are set together, got {sort_by!r} and {smaller_is_better!r}. Set both, or "
            "neither for the searcher's metric."
        )


def _sorted(
    client: trek.Client,
    experiment_id: int,
    *,
    metric: str | None = None,
    smaller_is_better: bool | None = None,
    trial_id: int | None = None,
) -> list[Checkpoint]:
    """Checkpoints that have the metric, by default the searcher's, the best first."""
    details = client.experiment(experiment_id)
    name = metric or details.metric
    sign = 1 if (details.smaller_is_better if smaller_is_better is None else smaller_is_better) else -1
    stored = client.checkpoints(experiment_id=experiment_id, trial_id=trial_id)
    scored = [
        (sign * value, one) for one in stored if not one.is_deleted and (value := one.metrics.get(name)) is not None
    ]
    return [Checkpoint(one.uuid, client) for _, one in sorted(scored, key=lambda pair: pair[0])]
