"""LogService: the lines that trials wrote, by experiment or by trial."""

from __future__ import annotations

from sqlalchemy import ColumnElement, select

from trek.client import models
from trek.client.view_models import LogOutline
from trek.control import views
from trek.control.experiments.parsed_config import known_secrets
from trek.control.logs.outlines import STEP, Outlines
from trek.control.logs.query import ANY_LINE, LogSearch
from trek.control.lookup import find_experiment, find_trial
from trek.control.store import Store
from trek.control.tables import LogTable, TrialRow


class LogService:
    """Reads lines."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._outlines = Outlines()

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
        conditions = [*_owned(experiment_id=experiment_id, trial_id=trial_id), *search.conditions()]
        with self._store.reading() as session:
            if trial_id is not None:
                find_trial(session, trial_id)
            if experiment_id is not None:
                find_experiment(session, experiment_id)
            found = self._outlines.find(session, (experiment_id, trial_id, search), conditions)
        return LogOutline(count=found.count, step=STEP, anchors=list(found.anchors), tracebacks=list(found.tracebacks))


def _owned(*, experiment_id: int | None, trial_id: int | None) -> list[ColumnElement[bool]]:
    """The conditions for the lines of a trial, or of all trials of an experiment."""
    conditions: list[ColumnElement[bool]] = []
    if trial_id is not None:
        conditions.append(LogTable.trial_id == trial_id)
    if experiment_id is not None:
        conditions.append(LogTable.trial_id.in_(select(TrialRow.id).where(TrialRow.experiment_id == experiment_id)))
    return conditions
