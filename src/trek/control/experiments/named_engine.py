"""The engine that experiments of a store need, for a control plane that was started without naming one."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.client.models import ENDED
from trek.control.tables import ExperimentRow


def named_engine(session: Session) -> str | None:
    """The engine in the config of the newest experiment that has not ended and names one; None if there is none."""
    unended = select(ExperimentRow.config).where(ExperimentRow.state.not_in(ENDED)).order_by(ExperimentRow.id.desc())
    return next((str(config["engine"]) for config in session.scalars(unended) if config.get("engine")), None)
