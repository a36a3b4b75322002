"""What tells a trial from those of other databases, which files are to be removed, and the one master."""

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
    op.create_table(
        "masters",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("nonce", sa.String(32), nullable=False),
        sa.Column("machine", sa.String(200), nullable=False),
        sa.Column("host", sa.String(200), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("process_start", sa.BigInteger, nullable=False),
        sa.Column("home", sa.Text, nullable=False),
        sa.Column("since_s", sa.Float, nullable=False),
        sa.Column("beat", sa.BigInteger, nullable=False),
        sa.Column("is_held", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    """Not offered: a store only moves forwards."""
    raise NotImplementedError("migrations only go forwards; restore a backup of the database instead")
