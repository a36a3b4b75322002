"""The calls of the Client about flows. How they are sent is left to the Client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter

from trek.client.flow_models import FlowLog, FlowRun, FlowRunDetails, FlowSummary
from trek.client.wire_values import segment

T = TypeVar("T", bound=BaseModel)


class FlowCalls(ABC):
    """Records and lists runs of flows."""

    def save_flow_run(self, run: FlowRunDetails) -> None:
        """Record the state of a run, replacing what was recorded before."""
        content = run.model_dump_json().encode()
        self._send("PUT", f"/flows/{segment(run.flow)}/runs/{segment(run.id)}", content=content)

    def flows(self) -> list[FlowSummary]:
        """All flows by name, each with its newest run."""
        return TypeAdapter(list[FlowSummary]).validate_json(self._send("GET", "/flows").content)

    def flow_runs(self, flow: str | None = None) -> list[FlowRun]:
        """The runs of one flow, or of all, the newest first."""
        if flow is None:
            runs = [run for one in self.flows() for run in self.flow_runs(one.name)]
            return sorted(runs, key=lambda run: run.started_s, reverse=True)
        return self._pages(FlowRun, f"/flows/{segment(flow)}/runs")

    def flow_run(self, flow: str, run: str) -> FlowRunDetails:
        """One run with its steps."""
        reply = self._send("GET", f"/flows/{segment(flow)}/runs/{segment(run)}")
        return FlowRunDetails.model_validate_json(reply.content)

    def flow_log(self, flow: str, run: str, *, step: str) -> str:
        """What a step wrote, for a run in the home of the control plane."""
        path = f"/flows/{segment(flow)}/runs/{segment(run)}/log"
        return FlowLog.model_validate_json(self._send("GET", path, query={"step": step}).content).text

    @abstractmethod
    def _pages(
        self, model: type[T], path: str, *, query: Any = None, limit: int | None = None, page: int = 1000
    ) -> list[T]:
        """All pages of a list."""

    @abstractmethod
    def _send(self, method: str, path: str, *, query: Any = None, content: bytes | None = None) -> httpx.Response:
        """Send a request; returns the answer, or raises the error in it."""
