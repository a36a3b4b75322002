"""The tables of the control plane. Their history is in `migrations`; they hold no behaviour."""

from __future__ import annotations

import uuid
from typing import Any, cast

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint, false
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from trek.client.models import State
from trek.control.states import check_move

# SQLite numbers rows by itself only for INTEGER keys.
_BIG_ID = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """All tables."""


class ExperimentRow(Base):
    """An experiment: its config, its searcher's snapshot and its state."""

    __tablename__ = "experiments"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    description: Mapped[str] = mapped_column(Text, default="")
    owner: Mapped[str] = mapped_column(String(100), default="")
    state: Mapped[str] = mapped_column(String(20), default="queued", index=True)
    wanted: Mapped[str] = mapped_column(String(20), default="run")
    """run, pause or kill: what the user requested; the supervisor acts on it."""
    config: Mapped[dict[str, Any]] = mapped_column(JSON)
    archive: Mapped[str] = mapped_column(String(64))
    labels: Mapped[list[str]] = mapped_column(JSON, default=list)
    is_archived: Mapped[bool] = mapped_column(default=False)
    parent: Mapped[int | None] = mapped_column(Integer)
    snapshot: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    search_finished: Mapped[bool] = mapped_column(default=False)
    expected_length: Mapped[int] = mapped_column(BigInteger, default=0)
    progress: Mapped[float] = mapped_column(Float, default=0.0)
    best_metric: Mapped[float | None] = mapped_column(Float)
    best_trial: Mapped[int | None] = mapped_column(Integer)
    error: Mapped[str] = mapped_column(Text, default="")
    failure: Mapped[str] = mapped_column(String(20), default="")
    warnings: Mapped[list[str]] = mapped_column(JSON, default=list)
    provenance: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict, server_default="{}")
    created_s: Mapped[float] = mapped_column(Float)
    started_s: Mapped[float | None] = mapped_column(Float)
    ended_s: Mapped[float | None] = mapped_column(Float)

    def move(self, state: State) -> None:
        """Change the state as the table of transitions allows."""
        check_move("experiment", cast(State, self.state), state)
        self.state = state


class TrialRow(Base):
    """One trial. `key` is its id in the searcher; `run` counts how often its gang was started."""

    __tablename__ = "trials"
    __table_args__ = (UniqueConstraint("experiment_id", "key"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"), index=True)
    uuid: Mapped[str] = mapped_column(String(32), default=lambda: uuid.uuid4().hex, server_default="")
    """Tells it from the trials of other databases; empty for trials of earlier releases."""
    key: Mapped[int] = mapped_column(Integer)
    parent_key: Mapped[int | None] = mapped_column(Integer)
    start_checkpoint: Mapped[str | None] = mapped_column(Text)
    """The folder of the checkpoint its first run starts from; None starts from scratch."""
    state: Mapped[str] = mapped_column(String(20), default="queued", index=True)
    wanted: Mapped[str] = mapped_column(String(20), default="run")
    """run, pause, stop or kill."""
    hparams: Mapped[dict[str, Any]] = mapped_column(JSON)
    seed: Mapped[int] = mapped_column(BigInteger)
    length: Mapped[int] = mapped_column(BigInteger)
    """How far to train, in the unit of the searcher."""
    run: Mapped[int] = mapped_column(Integer, default=0)
    restarts: Mapped[int] = mapped_column(Integer, default=0)
    progress: Mapped[float] = mapped_column(Float, default=0.0)
    batches: Mapped[int] = mapped_column(BigInteger, default=0)
    start_batches: Mapped[int] = mapped_column(BigInteger, default=0)
    """Batches of the checkpoint the current run started from."""
    best_metric: Mapped[float | None] = mapped_column(Float)
    latest_metrics: Mapped[dict[str, float]] = mapped_column(JSON, default=dict)
    checkpoint: Mapped[str | None] = mapped_column(String(100))
    slots: Mapped[list[int]] = mapped_column(JSON, default=list)
    """The slots its current run holds; empty while it is not running."""
    num_slots: Mapped[int | None] = mapped_column(Integer)
    """How many slots it was scaled to, at most if it is elastic; None for the number in the config."""
    num_workers: Mapped[int | None] = mapped_column(Integer)
    """How many workers of an elastic trial train together now; None for others, and while it does not run."""
    waiting: Mapped[str] = mapped_column(Text, default="")
    not_before_s: Mapped[float | None] = mapped_column(Float)
    """When it may be retried after an error from outside; None if at once."""
    retries_cancelled: Mapped[str] = mapped_column(Text, default="")
    log_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """How much of its log is stored."""
    error: Mapped[str] = mapped_column(Text, default="")
    traceback: Mapped[str] = mapped_column(Text, default="")
    failure: Mapped[str] = mapped_column(String(20), default="")
    created_s: Mapped[float] = mapped_column(Float)
    started_s: Mapped[float | None] = mapped_column(Float)
    ended_s: Mapped[float | None] = mapped_column(Float)

    @property
    def folder_name(self) -> str:
        """The name of its folders: its id, and what tells it from the trials of other databases."""
        return f"{self.id}-{self.uuid[:12]}" if self.uuid else str(self.id)

    @property
    def is_to_be_resized(self) -> bool:
        """Whether it was scaled while running, and must restart to have another number of slots."""
        is_elastic = self.num_workers is not None
        return self.state == "running" and not is_elastic and self.num_slots not in (None, len(self.slots))

    def move(self, state: State) -> None:
        """Change the state as the table of transitions allows."""
        check_move("trial", cast(State, self.state), state)
        self.state = state


class MetricTable(Base):
    """Reports by trial, group and batches; a row that is reported again replaces the old one."""

    __tablename__ = "metrics"

    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True)
    group: Mapped[str] = mapped_column(String(100), primary_key=True)
    batches: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    epoch: Mapped[float] = mapped_column(Float, default=0.0)
    metrics: Mapped[dict[str, float | None]] = mapped_column(JSON)
    time_s: Mapped[float] = mapped_column(Float)
    duration_s: Mapped[float] = mapped_column(Float, default=0.0)


class MetricBlockTable(Base):
    """The extremes of consecutive rows of one series; see `metric_blocks`."""

    __tablename__ = "metric_blocks"

    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True)
    group: Mapped[str] = mapped_column(String(100), primary_key=True)
    level: Mapped[int] = mapped_column(Integer, primary_key=True)
    first: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    last: Mapped[int] = mapped_column(BigInteger)
    num_rows: Mapped[int] = mapped_column(Integer)
    extremes: Mapped[dict[str, list[Any]]] = mapped_column(JSON)
    """By metric: the fields of `downsampling.Extremes`."""


class WorkerChangeTable(Base):
    """Workers of elastic trials that joined or left, in the order of `number`, and how many there were afterwards."""

    __tablename__ = "worker_changes"

    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), primary_key=True)
    run: Mapped[int] = mapped_column(Integer, primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    time_s: Mapped[float] = mapped_column(Float)
    generation: Mapped[int] = mapped_column(Integer)
    worker: Mapped[int | None] = mapped_column(Integer)
    """The rank of its process in the gang; None for what concerns all."""
    text: Mapped[str] = mapped_column(Text)
    num_workers: Mapped[int] = mapped_column(Integer)


class LogTable(Base):
    """Log lines, identified by their position in their file, so that none is stored twice."""

    __tablename__ = "logs"
    __table_args__ = (UniqueConstraint("trial_id", "run", "rank", "position"), Index("logs_trial", "trial_id", "id"))

    id: Mapped[int] = mapped_column(_BIG_ID, primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"))
    run: Mapped[int] = mapped_column(Integer)
    rank: Mapped[int] = mapped_column(Integer)
    position: Mapped[int] = mapped_column(BigInteger)
    """The byte after the line in its file, where reading continues."""
    time_s: Mapped[float] = mapped_column(Float)
    level: Mapped[int] = mapped_column(Integer, default=20, server_default="20")
    text: Mapped[str] = mapped_column(Text)


class TrialEventTable(Base):
    """What happened to trials; see `trial_history`."""

    __tablename__ = "trial_events"

    id: Mapped[int] = mapped_column(_BIG_ID, primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), index=True)
    run: Mapped[int] = mapped_column(Integer)
    time_s: Mapped[float] = mapped_column(Float)
    kind: Mapped[str] = mapped_column(String(20))
    text: Mapped[str] = mapped_column(Text)


class CheckpointTable(Base):
    """Checkpoints of trials, deleted ones included."""

    __tablename__ = "checkpoints"

    uuid: Mapped[str] = mapped_column(String(100), primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), index=True)
    batches: Mapped[int] = mapped_column(BigInteger)
    path: Mapped[str] = mapped_column(Text)
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    metrics: Mapped[dict[str, float | None]] = mapped_column(JSON, default=dict)
    time_s: Mapped[float] = mapped_column(Float)
    is_deleted: Mapped[bool] = mapped_column(default=False)
    awaits_removal: Mapped[bool] = mapped_column(default=False, server_default=false(), index=True)
    """Whether it was deleted by the keep policy, and its files are still to be removed."""


class ArchiveTable(Base):
    """Archives of model folders; the bytes are files named by their sha256."""

    __tablename__ = "archives"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    num_files: Mapped[int] = mapped_column(Integer)
    created_s: Mapped[float] = mapped_column(Float)


class UserRow(Base):
    """A user who may log in."""

    __tablename__ = "users"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    password_hash: Mapped[str] = mapped_column(Text)
    role: Mapped[str] = mapped_column(String(20))
    is_active: Mapped[bool] = mapped_column(default=True)
    created_s: Mapped[float] = mapped_column(Float)


class TokenRow(Base):
    """A token of a user; only its hash is stored."""

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    description: Mapped[str] = mapped_column(String(200), default="")
    created_s: Mapped[float] = mapped_column(Float)
    expires_s: Mapped[float] = mapped_column(Float)


class SecretRow(Base):
    """Secrets of the control plane itself, generated once."""

    __tablename__ = "secrets"

    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    value: Mapped[str] = mapped_column(String(200))


class ModelRow(Base):
    """A registered model: a name under which checkpoints have version numbers."""

    __tablename__ = "models"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    description: Mapped[str] = mapped_column(Text, default="")
    owner: Mapped[str] = mapped_column(String(100), default="")
    created_s: Mapped[float] = mapped_column(Float)


class ModelVersionRow(Base):
    """A checkpoint that is a version of a model, and is not removed as long as it is one."""

    __tablename__ = "model_versions"

    model_id: Mapped[int] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    checkpoint: Mapped[str] = mapped_column(ForeignKey("checkpoints.uuid"), index=True)
    notes: Mapped[str] = mapped_column(Text, default="")
    created_s: Mapped[float] = mapped_column(Float)


class TemplateRow(Base):
    """A part of a config that others are laid over."""

    __tablename__ = "templates"

    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    config: Mapped[dict[str, Any]] = mapped_column(JSON)
    owner: Mapped[str] = mapped_column(String(100), default="")
    created_s: Mapped[float] = mapped_column(Float)


class MasterRow(Base):
    """The one master that uses the database, or the last one that did; see `database_lease`."""

    __tablename__ = "masters"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    nonce: Mapped[str] = mapped_column(String(32))
    machine: Mapped[str] = mapped_column(String(200))
    host: Mapped[str] = mapped_column(String(200))
    pid: Mapped[int] = mapped_column(Integer)
    process_start: Mapped[int] = mapped_column(BigInteger)
    """When its process began, in the kernel's ticks."""
    home: Mapped[str] = mapped_column(Text)
    since_s: Mapped[float] = mapped_column(Float)
    beat: Mapped[int] = mapped_column(BigInteger)
    """Counted up while it lives."""
    is_held: Mapped[bool] = mapped_column()
