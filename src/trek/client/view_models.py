"""The models of the REST API that show much in one answer: curves, rungs, files, outlines of logs. No behaviour."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trek.client.models import Model
from trek.client.wire_values import Text


class Curve(Model):
    """One metric of one trial over its course, by columns: a hundred curves are one small answer."""

    trial_id: int
    batches: list[int]
    values: list[float | None]
    """None where a value is not finite."""
    epochs: list[float] = Field(default_factory=list)
    times: list[float] = Field(default_factory=list)
    """Of each point, if they were asked for."""
    num_undefined: int = 0
    """How many values are not finite; of a long series, fewer are among the points."""


class MetricNames(Model):
    """The metrics of a group, such as training or validation."""

    group: str
    names: list[str]


class Sparkline(Model):
    """The searcher's metric of an experiment's best trial, in a few points."""

    experiment_id: int
    values: list[float]


class RungEntry(Model):
    """A trial at a rung."""

    trial_id: int
    metric: float | None
    """As the trial reported it; None for one that failed or had no finite value."""
    went_on: bool
    """Whether it trains, or trained, beyond this rung."""


class RungView(Model):
    """One rung of one bracket: who came there, the best first."""

    bracket: int
    length: int
    unit: str
    divisor: float
    """One trial of so many goes on."""
    is_last: bool
    entries: list[RungEntry]


class CodeFile(Model):
    """A file of the model folder that ran."""

    path: str
    num_bytes: int


class CodeText(CodeFile):
    """A file with its text; empty for a file that is not text or too long."""

    text: str = ""
    is_text: bool = True


class TrialEvent(Model):
    """Something that happened to a trial: a run that started, or how one ended."""

    id: int
    run: int
    time_s: float
    kind: str
    text: str


class LogOutline(Model):
    """How many lines match, and where to begin reading any of them."""

    count: int
    step: int
    anchors: list[int]
    """The ids of lines 0, `step`, 2 × `step` and so on."""
    tracebacks: list[int]
    """The numbers of lines at which a traceback begins."""


class CheckConfig(Model):
    """A config as YAML."""

    config: Text = Field(max_length=1_000_000)


class ConfigCheck(Model):
    """Whether a config can be run, and if not, why."""

    is_valid: bool
    message: str = ""
    line: int | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    """In its normal form, without secrets."""
