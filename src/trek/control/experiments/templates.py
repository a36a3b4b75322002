"""Templates: parts of configs that experiments are laid over."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from trek.client import models
from trek.client.wire_values import clean
from trek.control.damaged_rows import each_shown, shown
from trek.control.lookup import find_template
from trek.control.store import Store
from trek.control.tables import TemplateRow
from trek.experiments.masking import check_unmasked, masked
from trek.system.clock import Clock


class Templates:
    """Named parts of configs. A template is checked when it is used, since it is only a part of a config."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def set(self, name: str, config: dict[str, Any], *, owner: str) -> models.Template:
        """Add or replace a template."""
        check_unmasked(config)
        with self._store.writing() as session:
            session.merge(TemplateRow(name=name, config=config, owner=owner, created_s=self._clock.now_s()))
        return self.get(name)

    def all(self) -> list[models.Template]:
        """All templates by name, their secrets masked."""
        with self._store.reading() as session:
            rows = session.scalars(select(TemplateRow).order_by(TemplateRow.name)).all()
        return each_shown(rows, _template, instead=_damaged)

    def owner(self, name: str) -> str | None:
        """Who set the template; None if it does not exist."""
        with self._store.reading() as session:
            return session.scalar(select(TemplateRow.owner).where(TemplateRow.name == name))

    def get(self, name: str, *, is_masked: bool = True) -> models.Template:
        """One template; unmasked for its owner, who creates experiments from it."""
        with self._store.reading() as session:
            row = find_template(session, name)
        return shown(row, lambda one: _template(one, is_masked=is_masked), instead=_damaged)

    def delete(self, name: str) -> None:
        """Delete a template; experiments created from it keep their configs."""
        with self._store.writing() as session:
            session.delete(find_template(session, name))


def _template(row: TemplateRow, *, is_masked: bool = True) -> models.Template:
    config = masked(row.config) if is_masked else row.config
    return models.Template(name=row.name, config=config, owner=row.owner, created_s=row.created_s)


def _damaged(row: TemplateRow, reason: str) -> models.Template:
    return models.Template(
        name=clean(row.name), config={}, owner=row.owner, created_s=row.created_s, error=f"cannot be shown: {reason}"
    )
