"""What tells a trial from those of other databases, and which checkpoints' files are still to be removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. Trials that are there keep their folders, which have no uuid in their names."""
    op.add_column("trials", sa.Column("uuid", sa.String(32), nullable=False, server_default=""))
    op.add_column("checkpoints", sa.Column("awaits_removal", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_index("ix_checkpoints_awaits_removal", "checkpoints", ["awaits_removal"])


def downgrade() -> None:
    """Not offered: a store only moves forwards."""
    raise NotImplementedError("migrations only go forwards; restore a backup of the database instead")
