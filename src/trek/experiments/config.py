"""The experiment's config: its schema and its one normal form.

Reading files is left to `yaml_source`, wording errors to `config_errors`. Loads neither torch nor anything that trains.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from trek.client.wire_values import Line, Text, find_fault
from trek.engines import ENGINES
from trek.experiments.config_checks import check_config
from trek.experiments.config_errors import SLOT_NUMBER, SLOT_RANGE, Problem, translate
from trek.experiments.config_ignored import describe_ignored
from trek.experiments.config_merging import merge_configs
from trek.experiments.config_spelling import respell_config, respell_training
from trek.experiments.yaml_source import YamlSource, parse_yaml, read_yaml
from trek.metric_direction import named_direction
from trek.search.searcher_registry import AnySearcherSettings
from trek.train.settings import TrainSettings

_START = re.compile(r"(trial|experiment):[0-9]{1,18}|[A-Za-z0-9_.-]{1,100}")


def _check_start(text: str) -> str:
    if not _START.fullmatch(text):
        raise ValueError("must be the uuid of a checkpoint, trial:ID or experiment:ID")
    return text


class Section(BaseModel):
    """A block of the config; keys it does not know are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class SlotRange(Section):
    """How few and how many slots an elastic trial may have while it runs."""

    min: int = Field(default=1, ge=1, le=65_536)
    """It starts with at least so many, and is never asked to go on with fewer."""
    max: int = Field(ge=1, le=65_536)
    """It gets up to so many while they are free."""


def _slots_form(value: Any) -> str:
    return SLOT_RANGE if isinstance(value, Mapping | SlotRange) else SLOT_NUMBER


Slots = Annotated[
    Annotated[int, Field(ge=1, le=65_536), Tag(SLOT_NUMBER)] | Annotated[SlotRange, Tag(SLOT_RANGE)],
    Discriminator(_slots_form),
]


class Resources(Section):
    """The resources of one trial, and the limits of the whole experiment."""

    slots_per_trial: Slots = 1
    """Processes of one trial: GPUs where there are any, else CPU cores. A range makes the trial elastic: its processes
    come and go while it trains."""
    servers: int = Field(default=0, ge=0, le=4096)
    """Parameter servers of one trial, for the strategy `ps`; they take no slots."""
    max_slots: int | None = Field(default=None, ge=1)
    """How many slots the experiment may use at the same time; by default as many as are free."""
    weight: float = Field(default=1.0, gt=0)
    """The experiment's share of the slots among experiments of the same priority."""
    priority: int | None = Field(default=None, ge=1, le=99)
    """Trials with smaller numbers start first; by default 50."""

    @property
    def elastic(self) -> SlotRange | None:
        """The range of slots of elastic trials; None where trials have a fixed number."""
        return self.slots_per_trial if isinstance(self.slots_per_trial, SlotRange) else None

    @property
    def least_slots(self) -> int:
        """What a trial needs to start."""
        return self.slots_per_trial.min if isinstance(self.slots_per_trial, SlotRange) else self.slots_per_trial

    @property
    def most_slots(self) -> int:
        """What a trial has at most."""
        return self.slots_per_trial.max if isinstance(self.slots_per_trial, SlotRange) else self.slots_per_trial


class CheckpointStorage(Section):
    """Where checkpoints are stored, and how many are kept."""

    type: Literal["default", "directory", "url"] = "default"
    """Where checkpoints are: under `$TREK_HOME`, in the folder `path`, or at `url`. Follows from the other keys."""
    path: str | None = None
    """A folder that every machine which trains can write to."""
    url: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9+.-]*://.+")
    """Any URL that fsspec supports, such as s3://bucket/runs."""
    save_experiment_best: int = Field(default=0, ge=0)
    """Best checkpoints of the whole experiment to keep, besides those of each trial."""
    save_trial_best: int = Field(default=1, ge=0)
    """Best checkpoints of each trial to keep."""
    save_trial_latest: int = Field(default=1, ge=0)
    """Newest checkpoints of each trial to keep."""
    save_trial_every: int | None = Field(default=None, ge=1)
    """Also keep every checkpoint whose number of batches is a multiple of this."""


class Optimizations(Section):
    """Other spellings of settings of `training`."""


class Reproducibility(Section):
    """The seed of random numbers."""

    experiment_seed: int = Field(default=0, ge=0, lt=2**31)
    """The seed of the search and of every trial."""


class Profiling(Section):
    """Accepted for compatibility; see `training.profile`."""

    enabled: bool = False
    """Trace batches with the torch profiler; the same as `training.profile`."""
    begin_on_batch: int | None = Field(default=None, ge=0)
    """The first batch of the trace; by default 1."""
    end_after_batch: int | None = Field(default=None, ge=0)
    """The last batch of the trace; by default 10 batches are traced."""


class Environment(Section):
    """The environment of trial processes."""

    environment_variables: dict[str, str] = Field(default_factory=dict)
    """Variables of trial processes: a mapping, or a list of `NAME=VALUE`."""


class LogPolicy(Section):
    """What to do when a line of a trial's log matches a regular expression."""

    name: str | None = None
    """A name for people."""
    pattern: str
    """A regular expression in RE2's syntax (no lookaround, no backreferences), searched for in every line."""
    action: Literal["cancel_retries"] = "cancel_retries"
    """What to do: `cancel_retries` makes the next failure of the trial final."""


class RetentionPolicy(Section):
    """How long logs and metrics are kept; -1 is forever."""

    log_retention_days: int = Field(default=-1, ge=-1)
    """Days after which lines of logs are removed."""
    metric_retention_days: int = Field(default=-1, ge=-1)
    """Days after the end of the experiment when its metrics are removed; validations are kept forever."""


class ExperimentConfig(Section):
    """One experiment, in the normal form."""

    name: Line = Field(default="experiment", min_length=1, max_length=200)
    """The name in lists; by default the first line of the description."""
    description: Text = ""
    """A sentence for people."""
    labels: list[Line] = Field(default_factory=list, max_length=1000)
    """Words to find it by."""
    data: dict[str, Any] = Field(default_factory=dict)
    """What the Trial finds in `context.get_data_config()`."""
    entrypoint: str | list[str]
    """`module:Class` of a Trial, or the words of a command."""
    hyperparameters: dict[str, Any] = Field(default_factory=dict)
    """Constants, and parameters that the searcher chooses; may be nested."""
    searcher: AnySearcherSettings
    """Which trials there are, and how long they train."""
    start_from: Annotated[str, AfterValidator(_check_start)] | None = None
    """The checkpoint that every trial starts from: its uuid, or `trial:ID` or `experiment:ID` for the best one."""
    engine: Annotated[str, AfterValidator(ENGINES.check)] | None = None
    """The engine that trials run on; by default the one of the control plane."""
    resources: Resources = Resources()
    """What one trial takes, and what the whole experiment may take."""
    training: TrainSettings = TrainSettings()
    """How to train: the settings of `trek.fit`."""
    max_restarts: int = Field(default=5, ge=0)
    """How often a trial is restarted after a failure that may pass."""
    checkpoint_storage: CheckpointStorage = CheckpointStorage()
    """Where checkpoints go, and how many of them stay."""
    optimizations: Optimizations = Optimizations()
    """Another place for settings of `training`."""
    reproducibility: Reproducibility = Reproducibility()
    """What random numbers start from."""
    profiling: Profiling = Profiling()
    """Another spelling of `training.profile`."""
    environment: Environment = Environment()
    """What trial processes find around them."""
    log_policies: list[LogPolicy] = Field(default_factory=list)
    """What to do when lines of a trial's log match."""
    retention_policy: RetentionPolicy = RetentionPolicy()
    """How long logs and metrics stay."""
    without_effect: list[str] = Field(default_factory=list)
    """Settings that have no effect here. Filled in from the keys of other platforms in the file."""

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
        """Plain JSON in the current spelling, as experiments are stored; parsing it gives this config again."""
        normal = self.model_dump(mode="json", exclude_none=True)
        # Only what was set: for a command, these settings override those of the program.
        normal["training"] = self.training.model_dump(mode="json", exclude_unset=True)
        return normal

    def sent_form(self) -> dict[str, Any]:
        """The normal form without what was derived from names: the control plane derives it, and warns about it."""
        sent = self.normal_form()
        if self.searcher.is_direction_derived:
            del sent["searcher"]["smaller_is_better"]
        return sent

    def warnings(self) -> list[str]:
        """What a user may not expect of this config."""
        lines = [f"no effect here: {describe_ignored(name)}." for name in self.without_effect]
        if self.searcher.max_length is None and self.command is None:
            lines.append("searcher.max_length is missing: each trial trains for 1 epoch.")
        if self.searcher.is_direction_derived and named_direction(self.searcher.metric) is not True:
            lines.append(self.searcher.describe_direction())
        return lines

    @classmethod
    def parse(cls, raw: Mapping[str, Any], *, name: str = "config") -> Self:
        """From a mapping in any accepted spelling."""
        return cls.from_source(YamlSource(name, dict(raw)))

    @classmethod
    def parse_text(cls, text: str, *, name: str = "config", environ: Mapping[str, str] = os.environ) -> Self:
        """From YAML text."""
        return cls.from_source(parse_yaml(text, name=name, environ=environ))

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
        source.override(overrides)
        return cls.from_source(source)

    @classmethod
    def from_source(cls, source: YamlSource) -> Self:
        """From YAML that was read, so that errors name lines."""
        if fault := find_fault(source.data):
            where = ".".join(map(str, fault.path)) or "the config"
            raise Problem(fault.path, f"{where!r} {fault.reason}.").as_error(source)
        try:
            config = cls.model_validate(respell_config(source.data))
            check_config(config)
        except ValidationError as error:
            raise translate(error, source=source, root=cls) from None
        except Problem as problem:
            raise problem.as_error(source) from None
        return config
