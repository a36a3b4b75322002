"""The tables of runs of flows."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Float, ForeignKeyConstraint, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from trek.control.tables import Base


class FlowRunRow(Base):
    """A run as its process last reported it."""

    __tablename__ = "flow_runs"

    flow: Mapped[str] = mapped_column(String(200), primary_key=True)
    id: Mapped[str] = mapped_column(String(100), primary_key=True)
    state: Mapped[str] = mapped_column(String(20))
    owner: Mapped[str] = mapped_column(String(100), default="")
    params: Mapped[dict[str, Any]] = mapped_column(JSON)
    source: Mapped[str | None] = mapped_column(Text)
    graph: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    num_steps: Mapped[dict[str, int]] = mapped_column(JSON)
    error: Mapped[str] = mapped_column(Text, default="")
    started_s: Mapped[float] = mapped_column(Float, index=True)
    ended_s: Mapped[float | None] = mapped_column(Float)
    heard_s: Mapped[float] = mapped_column(Float)
    """When its process last reported."""


class FlowStepRow(Base):
    """One step in one run."""

    __tablename__ = "flow_steps"
    __table_args__ = (ForeignKeyConstraint(["flow", "run"], ["flow_runs.flow", "flow_runs.id"], ondelete="CASCADE"),)

    flow: Mapped[str] = mapped_column(String(200), primary_key=True)
    run: Mapped[str] = mapped_column(String(100), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(20))
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    seconds: Mapped[float | None] = mapped_column(Float)
    reason: Mapped[str | None] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)
