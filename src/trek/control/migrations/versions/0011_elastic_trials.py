"""Workers of elastic trials: how many there are, and who joined and left."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the table. None of the trials that are there is elastic."""
    op.add_column("trials", sa.Column("num_workers", sa.Integer))
    op.create_table(
        "worker_changes",
        sa.Column("trial_id", sa.Integer, sa.ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("run", sa.Integer, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("worker", sa.Integer),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("num_workers", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    """Not offered: a store only moves forwards."""
    raise NotImplementedError("migrations only go forwards; restore a backup of the database instead")
