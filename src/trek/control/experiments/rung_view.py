"""What a searcher that halves has decided: who came to which rung, and who went on from there."""

from __future__ import annotations

import math

from sqlalchemy import select

from trek.client.view_models import RungEntry, RungView
from trek.control.experiments.parsed_config import parsed_config
from trek.control.lookup import find_experiment
from trek.control.store import Store
from trek.control.tables import TrialRow
from trek.control.trials.searching import load_searcher
from trek.search.asha import BracketSearcher
from trek.search.bracket import Bracket


def rungs_of(store: Store, experiment_id: int) -> list[RungView]:
    """The rungs of all brackets, the shortest of each first; none where the searcher has no rungs."""
    with store.reading() as session:
        row = find_experiment(session, experiment_id)
        trials = session.execute(select(TrialRow.key, TrialRow.id).where(TrialRow.experiment_id == experiment_id))
        ids: dict[int, int] = {key: trial_id for key, trial_id in trials}  # noqa: C416 - rows are not pairs to mypy
    searcher, settings = load_searcher(row), parsed_config(row).searcher
    if not isinstance(searcher, BracketSearcher):
        return []
    sign = 1.0 if settings.smaller_is_better else -1.0
    return [
        _rung(bracket, level, ids, number=number, unit=settings.length.unit, sign=sign)
        for number, bracket in enumerate(searcher.brackets)
        for level in range(len(bracket.rungs))
    ]


def _rung(bracket: Bracket, level: int, ids: dict[int, int], *, number: int, unit: str, sign: float) -> RungView:
    rung, later = bracket.rungs[level], {key for one in bracket.rungs[level + 1 :] for key in one.keys}
    going_on = later | {key for key, next_level in bracket.next_rung.items() if next_level > level}
    entries = [
        RungEntry(trial_id=ids[key], metric=sign * metric if math.isfinite(metric) else None, went_on=key in going_on)
        for key, metric in zip(rung.keys, rung.metrics, strict=True)
        if key in ids
    ]
    is_last = level == len(bracket.rungs) - 1
    return RungView(
        bracket=number, length=rung.length, unit=unit, divisor=bracket.divisor, is_last=is_last, entries=entries
    )
