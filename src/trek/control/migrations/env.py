"""Run by alembic: applies the migrations on the connection that the store passes in."""

from __future__ import annotations

from alembic import context

import trek.control.flows.flow_tables  # noqa: F401 - registers its tables with Base
from trek.control.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
