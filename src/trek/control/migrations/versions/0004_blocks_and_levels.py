"""Summaries of long series of metrics, and levels of log lines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the column. Lines that are there already count as info."""
    op.create_table(
        "metric_blocks",
        sa.Column("trial_id", sa.Integer, sa.ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("group", sa.String(100), primary_key=True),
        sa.Column("level", sa.Integer, primary_key=True),
        sa.Column("first", sa.BigInteger, primary_key=True),
        sa.Column("last", sa.BigInteger, nullable=False),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("extremes", sa.JSON, nullable=False),
    )
    op.add_column("logs", sa.Column("level", sa.Integer, nullable=False, server_default="20"))


def downgrade() -> None:
    """Not offered: a store only moves forwards."""
    raise NotImplementedError("migrations only go forwards; restore a backup of the database instead")
