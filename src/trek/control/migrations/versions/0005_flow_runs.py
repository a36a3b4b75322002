"""Runs of flows and their steps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "flow_runs",
        sa.Column("flow", sa.String(200), primary_key=True),
        sa.Column("id", sa.String(100), primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("params", sa.JSON, nullable=False),
        sa.Column("source", sa.Text),
        sa.Column("graph", sa.JSON, nullable=False),
        sa.Column("num_steps", sa.JSON, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("started_s", sa.Float, nullable=False, index=True),
        sa.Column("ended_s", sa.Float),
        sa.Column("heard_s", sa.Float, nullable=False),
    )
    op.create_table(
        "flow_steps",
        sa.Column("flow", sa.String(200), primary_key=True),
        sa.Column("run", sa.String(100), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("seconds", sa.Float),
        sa.Column("reason", sa.Text),
        sa.Column("error", sa.Text),
        sa.ForeignKeyConstraint(["flow", "run"], ["flow_runs.flow", "flow_runs.id"], ondelete="CASCADE"),
    )


def downgrade() -> None:
    """Not offered: a store only moves forwards."""
    raise NotImplementedError("migrations only go forwards; restore a backup of the database instead")
