"""The registry of models and the templates of configs."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trek.client import models
from trek.control.masking import masked
from trek.control.store import Store
from trek.control.tables import CheckpointTable, ModelRow, ModelVersionRow, TemplateRow
from trek.errors import InputError, NotFound


class Registry:
    """Named models with numbered versions, each a checkpoint."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create_model(self, request: models.CreateModel, *, owner: str) -> models.RegisteredModel:
        """Add a model without versions."""
        with self._store.writing() as session:
            if session.scalar(select(ModelRow).where(ModelRow.name == request.name)) is not None:
                raise InputError(f"the model {request.name!r} exists already. Register a version of it instead.")
            row = ModelRow(name=request.name, description=request.description, owner=owner, created_s=time.time())
            session.add(row)
        return self.model(request.name)

    def all_models(self) -> list[models.RegisteredModel]:
        """All models, by name."""
        with self._store.reading() as session:
            rows = session.scalars(select(ModelRow).order_by(ModelRow.name)).all()
            return [_model(session, row) for row in rows]

    def model(self, name: str) -> models.RegisteredModel:
        """One model with its versions."""
        with self._store.reading() as session:
            return _model(session, _find(session, name))

    def register(self, name: str, request: models.RegisterVersion) -> models.RegisteredModel:
        """Make a checkpoint the next version of a model; it stays as long as the version does."""
        with self._store.writing() as session:
            model = _find(session, name)
            checkpoint = session.get(CheckpointTable, request.checkpoint)
            if checkpoint is None or checkpoint.is_deleted:
                raise NotFound(f"checkpoint {request.checkpoint!r} does not exist. See `trek checkpoint list`.")
            newest = select(func.max(ModelVersionRow.number)).where(ModelVersionRow.model_id == model.id)
            session.add(
                ModelVersionRow(
                    model_id=model.id,
                    number=(session.scalar(newest) or 0) + 1,
                    checkpoint=checkpoint.uuid,
                    notes=request.notes,
                    created_s=time.time(),
                )
            )
        return self.model(name)

    def delete_model(self, name: str) -> None:
        """Forget a model; its checkpoints stay, and may go from now on."""
        with self._store.writing() as session:
            session.delete(_find(session, name))

    def owner(self, name: str) -> str:
        """Whose model it is."""
        with self._store.reading() as session:
            return _find(session, name).owner

    # templates

    def set_template(self, name: str, config: dict[str, Any], *, owner: str) -> models.Template:
        """Add or replace a template; it is checked when it is used, since it is only a part of a config."""
        with self._store.writing() as session:
            session.merge(TemplateRow(name=name, config=config, owner=owner, created_s=time.time()))
        return self.template(name)

    def templates(self) -> list[models.Template]:
        """All templates, by name."""
        with self._store.reading() as session:
            return [_template(row) for row in session.scalars(select(TemplateRow).order_by(TemplateRow.name))]

    def template(self, name: str, *, is_masked: bool = True) -> models.Template:
        """One template; unmasked for those who lay configs over it."""
        with self._store.reading() as session:
            return _template(_find_template(session, name), is_masked=is_masked)

    def delete_template(self, name: str) -> None:
        """Forget a template."""
        with self._store.writing() as session:
            session.delete(_find_template(session, name))


def _find(session: Session, name: str) -> ModelRow:
    row = session.scalar(select(ModelRow).where(ModelRow.name == name))
    if row is None:
        raise NotFound(f"the model {name!r} does not exist. See `trek model list`, or add it with `trek model create`.")
    return row


def _find_template(session: Session, name: str) -> TemplateRow:
    row = session.get(TemplateRow, name)
    if row is None:
        raise NotFound(f"the template {name!r} does not exist. See `trek template list`.")
    return row


def _model(session: Session, row: ModelRow) -> models.RegisteredModel:
    versions = session.scalars(
        select(ModelVersionRow).where(ModelVersionRow.model_id == row.id).order_by(ModelVersionRow.number.desc())
    )
    return models.RegisteredModel(
        name=row.name,
        description=row.description,
        owner=row.owner,
        created_s=row.created_s,
        versions=[
            models.ModelVersion(number=v.number, checkpoint=v.checkpoint, notes=v.notes, created_s=v.created_s)
            for v in versions
        ],
    )


def _template(row: TemplateRow, *, is_masked: bool = True) -> models.Template:
    config = masked(row.config) if is_masked else row.config
    return models.Template(name=row.name, config=config, owner=row.owner, created_s=row.created_s)
