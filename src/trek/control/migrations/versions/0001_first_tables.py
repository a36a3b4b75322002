"""The first tables: experiments, trials, metrics, logs, checkpoints, archives."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "experiments",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("state", sa.String(20), nullable=False, index=True),
        sa.Column("wanted", sa.String(20), nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("archive", sa.String(64), nullable=False),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("is_archived", sa.Boolean, nullable=False),
        sa.Column("parent", sa.Integer),
        sa.Column("snapshot", sa.JSON, nullable=False),
        sa.Column("search_finished", sa.Boolean, nullable=False),
        sa.Column("expected_length", sa.BigInteger, nullable=False),
        sa.Column("progress", sa.Float, nullable=False),
        sa.Column("best_metric", sa.Float),
        sa.Column("best_trial", sa.Integer),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("failure", sa.String(20), nullable=False),
        sa.Column("warnings", sa.JSON, nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
        sa.Column("started_s", sa.Float),
        sa.Column("ended_s", sa.Float),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "trials",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "experiment_id", sa.Integer, sa.ForeignKey("experiments.id", ondelete="CASCADE"), nullable=False, index=True
        ),
        sa.Column("key", sa.Integer, nullable=False),
        sa.Column("parent_key", sa.Integer),
        sa.Column("start_checkpoint", sa.Text),
        sa.Column("state", sa.String(20), nullable=False, index=True),
        sa.Column("wanted", sa.String(20), nullable=False),
        sa.Column("hparams", sa.JSON, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("length", sa.BigInteger, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("restarts", sa.Integer, nullable=False),
        sa.Column("progress", sa.Float, nullable=False),
        sa.Column("batches", sa.BigInteger, nullable=False),
        sa.Column("start_batches", sa.BigInteger, nullable=False),
        sa.Column("best_metric", sa.Float),
        sa.Column("latest_metrics", sa.JSON, nullable=False),
        sa.Column("checkpoint", sa.String(100)),
        sa.Column("slots", sa.JSON, nullable=False),
        sa.Column("waiting", sa.Text, nullable=False),
        sa.Column("retries_cancelled", sa.Text, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("traceback", sa.Text, nullable=False),
        sa.Column("failure", sa.String(20), nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
        sa.Column("started_s", sa.Float),
        sa.Column("ended_s", sa.Float),
        sa.UniqueConstraint("experiment_id", "key"),
        sqlite_autoincrement=True,
    )
    _trial_records()


def _trial_records() -> None:
    op.create_table(
        "metrics",
        sa.Column("trial_id", sa.Integer, sa.ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("group", sa.String(100), primary_key=True),
        sa.Column("batches", sa.BigInteger, primary_key=True),
        sa.Column("epoch", sa.Float, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("duration_s", sa.Float, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "logs",
        sa.Column("id", _BIG_ID, primary_key=True),
        sa.Column("trial_id", sa.Integer, sa.ForeignKey("trials.id", ondelete="CASCADE"), nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.UniqueConstraint("trial_id", "run", "rank", "position"),
    )
    op.create_index("logs_trial", "logs", ["trial_id", "id"])
    op.create_table(
        "checkpoints",
        sa.Column("uuid", sa.String(100), primary_key=True),
        sa.Column("trial_id", sa.Integer, sa.ForeignKey("trials.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("batches", sa.BigInteger, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("is_deleted", sa.Boolean, nullable=False),
    )
    op.create_table(
        "archives",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("num_files", sa.Integer, nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
    )


def downgrade() -> None:
    """Not offered: a store only moves forwards."""
    raise NotImplementedError("migrations only go forwards; restore a backup of the database instead")
