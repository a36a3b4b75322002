"""LogService: the lines that trials wrote, by experiment or by trial."""

from __future__ import annotations

from sqlalchemy import ColumnElement, func, select

from trek.client import models
from trek.client.view_models import LogOutline
from trek.control import views
from trek.control.experiments.parsed_config import known_secrets
from trek.control.logs.query import ANY_LINE, LogSearch
from trek.control.lookup import find_experiment, find_trial
from trek.control.store import Store
from trek.control.tables import LogTable, TrialRow

OUTLINE_STEP = 1000
MAX_TRACEBACKS = 200


class LogService:
    """Reads lines."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        after: int = 0,
        limit: int = 1000,
        tail: int | None = None,
        search: LogSearch = ANY_LINE,
    ) -> list[models.LogLine]:
        """Lines with ids above `after` that match `search`, the oldest first; with `tail`, only the last `tail`."""
        owner = experiment_id
        with self._store.reading() as session:
            query = select(LogTable).where(LogTable.id > after, *search.conditions())
            if trial_id is not None:
                owner = find_trial(session, trial_id).experiment_id
            query = query.where(*_owned(experiment_id=experiment_id, trial_id=trial_id))
            secrets = known_secrets(find_experiment(session, owner)) if owner is not None else frozenset()
            if tail is not None:
                rows = session.scalars(query.order_by(LogTable.id.desc()).limit(tail)).all()[::-1]
            else:
                rows = session.scalars(query.order_by(LogTable.id).limit(limit)).all()
        return [views.log_line(row, secrets=secrets) for row in rows]

    def outline(
        self, *, experiment_id: int | None = None, trial_id: int | None = None, search: LogSearch = ANY_LINE
    ) -> LogOutline:
        """How many lines match, and the ids at which every thousandth begins, so that any part can be read at once."""
        owned = _owned(experiment_id=experiment_id, trial_id=trial_id)
        number = (func.row_number().over(order_by=LogTable.id) - 1).label("number")
        lines = select(LogTable.id, number).where(*owned, *search.conditions()).subquery()
        begins = LogTable.text.startswith("Traceback (most recent call last)")
        with self._store.reading() as session:
            if trial_id is not None:
                find_trial(session, trial_id)
            if experiment_id is not None:
                find_experiment(session, experiment_id)
            anchors = session.scalars(
                select(lines.c.id).where(lines.c.number % OUTLINE_STEP == 0).order_by(lines.c.number)
            ).all()
            count = session.scalar(select(func.count()).select_from(lines)) or 0
            places = select(lines.c.number).join(LogTable, LogTable.id == lines.c.id).where(begins)
            tracebacks = session.scalars(places.order_by(lines.c.number).limit(MAX_TRACEBACKS)).all()
        return LogOutline(count=count, step=OUTLINE_STEP, anchors=list(anchors), tracebacks=list(tracebacks))


def _owned(*, experiment_id: int | None, trial_id: int | None) -> list[ColumnElement[bool]]:
    """The conditions for the lines of a trial, or of all trials of an experiment."""
    conditions: list[ColumnElement[bool]] = []
    if trial_id is not None:
        conditions.append(LogTable.trial_id == trial_id)
    if experiment_id is not None:
        conditions.append(LogTable.trial_id.in_(select(TrialRow.id).where(TrialRow.experiment_id == experiment_id)))
    return conditions
