"""The models of the REST API about flows and their runs. No behaviour, no torch.

A flow's states are its own: a run is `running`, `done`, `failed` or `interrupted`; a step may also be `pending`,
`cached`, `skipped` or `blocked`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trek.client.models import Model
from trek.client.wire_values import JsonObject, Line, Output, PathName


class FlowStep(Model):
    """One step in one run."""

    name: str
    state: str = Field(max_length=20)
    attempt: int = 0
    seconds: float | None = None
    reason: str | None = None
    error: str | None = None


class FlowNode(Model):
    """A step in the graph, and the steps it waits for."""

    name: str
    after: list[str] = Field(default_factory=list)


class FlowRun(Model):
    """One run of a flow, as lists show it."""

    id: str = Field(max_length=100)
    flow: str = Field(max_length=200)
    state: str = Field(max_length=20)
    owner: str = ""
    params: dict[str, Any] = Field(default_factory=dict)
    source: str | None = None
    """The file that defines the flow."""
    started_s: float
    ended_s: float | None = None
    num_steps: dict[str, int] = Field(default_factory=dict)
    """The number of steps by state."""
    error: str = ""
    """The error of the first failed step."""


class FlowRunDetails(FlowRun):
    """One run with its graph and its steps in the order of their definition."""

    graph: list[FlowNode] = Field(default_factory=list)
    steps: list[FlowStep] = Field(default_factory=list)


class SavedStep(FlowStep):
    """One step of a run that is sent to be recorded."""

    name: Line
    state: Line = Field(max_length=20)
    reason: Output | None = None
    error: Output | None = None


class SavedNode(FlowNode):
    """A step in the graph of a run that is sent to be recorded."""

    name: Line
    after: list[Line] = Field(default_factory=list)


class SaveFlowRun(FlowRunDetails):
    """A run that is sent to be recorded."""

    id: PathName = Field(min_length=1, max_length=100)
    flow: PathName = Field(min_length=1, max_length=200)
    state: Line = Field(max_length=20)
    owner: Line = ""
    params: JsonObject = Field(default_factory=dict)
    source: Output | None = None
    num_steps: dict[Line, int] = Field(default_factory=dict)
    error: Output = ""
    graph: list[SavedNode] = Field(default_factory=list)  # type: ignore[assignment]
    steps: list[SavedStep] = Field(default_factory=list)  # type: ignore[assignment]


class FlowLog(Model):
    """What one step of one run wrote."""

    text: str


class FlowSummary(Model):
    """A flow and its newest run."""

    name: str
    num_runs: int
    last_run: FlowRun
