"""ModelRegistry: named models, each with numbered versions that are checkpoints."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trek.client import models
from trek.client.wire_values import clean
from trek.control.lookup import find_model
from trek.control.store import Store
from trek.control.tables import CheckpointTable, ModelRow, ModelVersionRow
from trek.errors import InputError, NotFound
from trek.system.clock import Clock


class ModelRegistry:
    """Registers checkpoints as versions of models."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def create(self, request: models.CreateModel, *, owner: str) -> models.RegisteredModel:
        """Add a model without versions."""
        with self._store.writing() as session:
            if session.scalar(select(ModelRow).where(ModelRow.name == request.name)) is not None:
                raise InputError(f"the model {request.name!r} already exists. Register a version of it instead.")
            now_s = self._clock.now_s()
            session.add(ModelRow(name=request.name, description=request.description, owner=owner, created_s=now_s))
        return self.get(request.name)

    def all(self) -> list[models.RegisteredModel]:
        """All models, by name."""
        with self._store.reading() as session:
            rows = session.scalars(select(ModelRow).order_by(ModelRow.name)).all()
            return [_model(session, row) for row in rows]

    def get(self, name: str) -> models.RegisteredModel:
        """One model with its versions."""
        with self._store.reading() as session:
            return _model(session, find_model(session, name))

    def register(self, name: str, request: models.RegisterVersion) -> models.RegisteredModel:
        """Make a checkpoint the next version of a model; it cannot be deleted while it is one."""
        with self._store.writing() as session:
            model = find_model(session, name)
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
                    created_s=self._clock.now_s(),
                )
            )
        return self.get(name)

    def delete(self, name: str) -> None:
        """Delete a model and its version numbers; its checkpoints stay, and may be deleted from now on."""
        with self._store.writing() as session:
            session.delete(find_model(session, name))

    def owner(self, name: str) -> str:
        """Who created the model."""
        with self._store.reading() as session:
            return find_model(session, name).owner


def _model(session: Session, row: ModelRow) -> models.RegisteredModel:
    versions = session.scalars(
        select(ModelVersionRow).where(ModelVersionRow.model_id == row.id).order_by(ModelVersionRow.number.desc())
    )
    return models.RegisteredModel(
        name=row.name,
        description=clean(row.description),
        owner=row.owner,
        created_s=row.created_s,
        versions=[
            models.ModelVersion(number=v.number, checkpoint=v.checkpoint, notes=clean(v.notes), created_s=v.created_s)
            for v in versions
        ],
    )
