"""The experiment's config: its schema and its one normal form.

Reading files is left to `yaml_source`, wording errors to `config_errors`. Loads neither torch nor anything that trains.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from trek.engines import ENGINES
from trek.experiments.config_checks import check_config
from trek.experiments.config_errors import Problem, translate
from trek.experiments.config_merging import merge_configs
from trek.experiments.config_spelling import respell_config, respell_training
from trek.experiments.yaml_source import YamlSource, parse_yaml, read_yaml
from trek.search.searcher_registry import AnySearcherSettings
from trek.train.settings import TrainSettings


class Section(BaseModel):
    """A block of the config; keys it does not know are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Resources(Section):
    """The resources of one trial, and the limits of the whole experiment."""

    slots_per_trial: int = Field(default=1, ge=1, le=65_536)
    max_slots: int | None = Field(default=None, ge=1)
    weight: float = Field(default=1.0, gt=0)
    priority: int | None = Field(default=None, ge=1, le=99)
    resource_pool: str | None = None


class CheckpointStorage(Section):
    """Where checkpoints are stored, and how many are kept."""

    type: Literal["default", "directory", "url"] = "default"
    path: str | None = None
    url: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9+.-]*://.+")
    """Any URL that fsspec supports, such as s3://bucket/runs."""
    save_experiment_best: int = Field(default=0, ge=0)
    save_trial_best: int = Field(default=1, ge=0)
    save_trial_latest: int = Field(default=1, ge=0)
    save_trial_every: int | None = Field(default=None, ge=1)
    """Also keep every checkpoint whose number of batches is a multiple of this."""


class Optimizations(Section):
    """Accepted for compatibility; `training` has the settings of gradients."""

    average_aggregated_gradients: bool = True
    gradient_compression: bool = False


class Reproducibility(Section):
    """The seed of random numbers."""

    experiment_seed: int = Field(default=0, ge=0, lt=2**31)


class Profiling(Section):
    """Accepted for compatibility; see `training.profile`."""

    enabled: bool = False
    begin_on_batch: int | None = Field(default=None, ge=0)
    end_after_batch: int | None = Field(default=None, ge=0)
    sync_timings: bool | None = None


class Environment(Section):
    """The environment of trial processes."""

    environment_variables: dict[str, str] = Field(default_factory=dict)
    image: Any = None
    pod_spec: Any = None
    ports: Any = None
    force_pull_image: bool | None = None


class LogPolicy(Section):
    """What to do when a line of a trial's log matches a regular expression."""

    name: str | None = None
    pattern: str
    action: Literal["cancel_retries"] = "cancel_retries"


class RetentionPolicy(Section):
    """How long logs and metrics are kept; -1 is forever."""

    log_retention_days: int = Field(default=-1, ge=-1)
    metric_retention_days: int = Field(default=-1, ge=-1)
    """Counted from the end of the experiment. Validations are kept forever."""


class ExperimentConfig(Section):
    """One experiment, in the normal form."""

    name: str = Field(default="experiment", min_length=1, max_length=200)
    description: str = ""
    labels: list[str] = Field(default_factory=list)
    workspace: str | None = None
    project: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    entrypoint: str | list[str]
    """`module:Class` of a Trial, or the words of a command."""
    hyperparameters: dict[str, Any] = Field(default_factory=dict)
    searcher: AnySearcherSettings
    engine: Annotated[str, AfterValidator(ENGINES.check)] | None = None
    """The engine that trials run on; by default the one of the control plane."""
    resources: Resources = Resources()
    training: TrainSettings = TrainSettings()
    """How to train: the settings of `trek.fit`."""
    max_restarts: int = Field(default=5, ge=0)
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    checkpoint_storage: CheckpointStorage = CheckpointStorage()
    optimizations: Optimizations = Optimizations()
    reproducibility: Reproducibility = Reproducibility()
    profiling: Profiling = Profiling()
    environment: Environment = Environment()
    log_policies: list[LogPolicy] = Field(default_factory=list)
    retention_policy: RetentionPolicy = RetentionPolicy()

    @property
    def command(self) -> list[str] | None:
        """The words of the command that a trial runs; None if it trains a Trial."""
        return self.entrypoint if isinstance(self.entrypoint, list) else None

    @property
    def trial_class(self) -> str:
        """`module:Class` of the Trial; must not be called if there is a command."""
        assert isinstance(self.entrypoint, str)
        return self.entrypoint

    def normal_form(self) -> dict[str, Any]:
        """Plain JSON in the current spelling; parsing it gives this config again."""
        normal = self.model_dump(mode="json", exclude_none=True)
        # Only what was set: for a command, these settings override those of the program.
        normal["training"] = self.training.model_dump(mode="json", exclude_unset=True)
        return normal

    def warnings(self) -> list[str]:
        """Settings that are accepted but have no effect."""
        ignored = {
            "workspace": self.workspace is not None,
            "project": self.project is not None,
            "resources.resource_pool": self.resources.resource_pool is not None,
            "profiling": self.profiling.enabled,
            "environment.image": self.environment.image is not None,
            "environment.pod_spec": self.environment.pod_spec is not None,
            "environment.ports": self.environment.ports is not None,
            "optimizations.gradient_compression": self.optimizations.gradient_compression,
            "optimizations.average_aggregated_gradients: false": not self.optimizations.average_aggregated_gradients,
            "checkpoint_policy: none": self.checkpoint_policy == "none",
        }
        return [f"{key} has no effect." for key, is_set in ignored.items() if is_set]

    @classmethod
    def parse(cls, raw: Mapping[str, Any], *, name: str = "config") -> Self:
        """From a mapping in any accepted spelling."""
        return cls._from_source(YamlSource(name, dict(raw)))

    @classmethod
    def parse_text(cls, text: str, *, name: str = "config", environ: Mapping[str, str] = os.environ) -> Self:
        """From YAML text."""
        return cls._from_source(parse_yaml(text, name=name, environ=environ))

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        overrides: Sequence[str] = (),
        template: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Self:
        """From a YAML file, merged over `template`, with `key=value` overrides applied."""
        source = read_yaml(path, environ=environ)
        if template is not None:
            source.data = merge_configs(respell_training(template), respell_training(source.data))
        for setting in overrides:
            source.override(setting)
        return cls._from_source(source)

    @classmethod
    def _from_source(cls, source: YamlSource) -> Self:
        try:
            config = cls.model_validate(respell_config(source.data))
            check_config(config)
        except ValidationError as error:
            raise translate(error, source=source, root=cls) from None
        except Problem as problem:
            raise problem.as_error(source) from None
        return config
