"""How much of a trial's log is stored, and log policies without the patterns that RE2 does not support."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from trek.errors import InputError
from trek.experiments.log_patterns import compile_pattern

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and take unsupported patterns out of stored configs, which could not be loaded with them."""
    op.add_column("trials", sa.Column("log_bytes", sa.BigInteger, nullable=False, server_default="0"))
    table = sa.table(
        "experiments", sa.column("id", sa.Integer), sa.column("config", sa.JSON), sa.column("warnings", sa.JSON)
    )
    connection = op.get_bind()
    for row in connection.execute(sa.select(table)).all():
        policies = (row.config or {}).get("log_policies") or []
        kept = [policy for policy in policies if _is_supported(policy)]
        if len(kept) < len(policies):
            dropped = [policy.get("pattern") for policy in policies if policy not in kept]
            warning = f"removed log policies whose patterns are no longer supported: {dropped}."
            values = {"config": {**row.config, "log_policies": kept}, "warnings": [*(row.warnings or []), warning]}
            connection.execute(sa.update(table).where(table.c.id == row.id).values(**values))


def _is_supported(policy: dict[str, Any]) -> bool:
    try:
        compile_pattern(policy["pattern"])
    except InputError:
        return False
    return True


def downgrade() -> None:
    """Not offered: a store only moves forwards."""
    raise NotImplementedError("migrations only go forwards; restore a backup of the database instead")
