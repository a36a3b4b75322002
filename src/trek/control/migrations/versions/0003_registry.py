"""Where an experiment came from, the registry of models, and templates of configs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the tables."""
    with op.batch_alter_table("experiments") as table:
        table.add_column(sa.Column("provenance", sa.JSON, nullable=False, server_default="{}"))
    op.create_table(
        "models",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "model_versions",
        sa.Column("model_id", sa.Integer, sa.ForeignKey("models.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("checkpoint", sa.String(100), sa.ForeignKey("checkpoints.uuid"), nullable=False, index=True),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
    )
    op.create_table(
        "templates",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
    )


def downgrade() -> None:
    """Not offered: a store only moves forwards."""
    raise NotImplementedError("migrations only go forwards; restore a backup of the database instead")
