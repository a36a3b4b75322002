"""The models of the REST API, shared by the client and the master. No behaviour, no torch.

Times are seconds since 1970.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trek.client.wire_values import JsonObject, Line, MetricName, Metrics, Output, PathName, Secret, Text

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""A number of batches or bytes, as a database can hold it."""

State = Literal["queued", "running", "paused", "completed", "errored", "killed"]
ENDED: tuple[State, ...] = ("completed", "errored", "killed")
Level = Literal["debug", "info", "warning", "error", "critical"]
Failure = Literal["", "user", "input", "outside", "rejected"]
"""What caused an error: the user's code, invalid input, the outside (network, disk), or InvalidHP."""


class Model(BaseModel):
    """Unknown fields are ignored, so that an older client can talk to a newer master. Numbers are finite.

    A model that is the body of a request takes its text from `wire_values`.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class ExperimentRecord(Model):
    """One experiment, as lists show it."""

    id: int
    name: str
    description: str = ""
    state: State
    progress: float
    metric: str
    smaller_is_better: bool
    searcher: str
    hyperparameters: dict[str, Any] = {}
    best_metric: float | None = None
    best_trial: int | None = None
    best_hparams: dict[str, Any] = {}
    """Of the best trial."""
    num_trials: int = 0
    labels: list[str] = []
    owner: str = ""
    is_archived: bool = False
    parent: int | None = None
    error: str = ""
    failure: Failure = ""
    created_s: float
    started_s: float | None = None
    ended_s: float | None = None


class SlotRange(Model):
    """How few and how many slots an elastic trial may have."""

    min: int
    max: int


class WorkerChange(Model):
    """A worker of an elastic trial that joined or left."""

    run: int
    time_s: float
    generation: int
    """Counts the groups of workers that trained together in this run."""
    worker: int | None = None
    """The number of its process; None for what concerns all."""
    text: str
    num_workers: int
    """How many trained together afterwards."""


class TrialRecord(Model):
    """One trial."""

    id: int
    experiment_id: int
    key: int
    state: State
    hparams: dict[str, Any]
    seed: int
    progress: float
    batches: int
    length: dict[str, int]
    slots: int = 1
    """How many processes train it; after it was scaled, how many it will resume with. Those that a running elastic
    trial has now, otherwise the most it may have."""
    slot_range: SlotRange | None = None
    """Only for elastic trials."""
    num_workers: int | None = None
    """How many workers of a running elastic trial train together now."""
    restarts: int = 0
    run: int = 0
    best_metric: float | None = None
    latest_metrics: dict[str, float] = {}
    checkpoint: str | None = None
    waiting: str = ""
    """Why a queued trial does not run yet."""
    error: str = ""
    traceback: str = ""
    failure: Failure = ""
    created_s: float
    started_s: float | None = None
    ended_s: float | None = None


class ExperimentDetails(ExperimentRecord):
    """One experiment with its config, provenance, trials and warnings."""

    config: dict[str, Any]
    archive: str
    """sha256 of the model folder's archive."""
    provenance: dict[str, Any] = {}
    trials: list[TrialRecord] = []
    warnings: list[str] = []


class MetricPoint(Model):
    """One report of one group of metrics."""

    group: MetricName = Field(min_length=1)
    batches: Count
    epoch: float = 0.0
    metrics: Metrics
    time_s: float
    duration_s: float = 0.0


class CheckpointReport(Model):
    """A complete checkpoint on storage, as a trial reports it."""

    uuid: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")
    batches: Count
    path: Output
    num_bytes: Count
    metrics: Metrics = {}
    time_s: float


class CheckpointRecord(CheckpointReport):
    """A checkpoint, as lists show it."""

    trial_id: int
    experiment_id: int
    is_deleted: bool = False


BestReason = Literal["best_metric", "newest_of_best_trial", "newest"]
"""Why a checkpoint is an experiment's best: the best value of the searcher's metric; where no stored checkpoint has a
finite one, the newest of the best trial; where that one has none, the newest of all trials."""


class BestCheckpoint(CheckpointRecord):
    """The best checkpoint of an experiment, and why it is."""

    reason: BestReason


class LogLine(Model):
    """One line that one process of a trial wrote. `id` increases, and is the cursor for reading on."""

    id: int
    trial_id: int
    rank: int
    run: int
    time_s: float
    level: Level = "info"
    """Derived from the text; info where it names no level."""
    text: str


class Assignment(Model):
    """What a process of a trial needs to know to train."""

    trial_id: int
    experiment_id: int
    run: int
    config: dict[str, Any]
    hparams: dict[str, Any]
    seed: int
    length: dict[str, int]
    validation_lengths: list[dict[str, int]] = []
    """Lengths at which the searcher needs a validation."""
    archive: str
    checkpoint_dir: str
    owner: str = ""
    """Written to the trial's checkpoints, so that it never takes those of another for its own."""
    experiment_key: str = ""
    """Identifies the experiment among those of all control planes: the owner of its first trial."""
    resume: str | None = None
    checkpoints: list[str] | None = None
    """Names of those of its checkpoints that count: another one is of a run that was lost before it could report it."""
    name: str


class StoredCheckpoint(Model):
    """Where the control plane has stored a checkpoint that a trial sent."""

    path: str


class ArtifactRecord(Model):
    """One file of a user's own that a trial keeps."""

    name: str
    num_bytes: int
    time_s: float
    content_type: str
    """`image/…` for what browsers may show; other content is only downloaded."""


class Report(Model):
    """What a trial reports. Rows are identified by trial, group and batches: sent twice, they count once."""

    run: int
    metrics: list[MetricPoint] = []
    checkpoints: list[CheckpointReport] = []
    progress: float | None = None


class ReportReply(Model):
    """The answer to a report: why the trial should stop, or nothing."""

    stop: Literal["", "killed", "preempted", "searcher"] = ""


class CreateExperiment(Model):
    """A new experiment; its archive must be uploaded before."""

    config: JsonObject
    archive: Line
    provenance: JsonObject = {}
    """The versions, machine and commit it was created with."""


class ForkExperiment(Model):
    """A new experiment with the code and config of another; `changes` are keyed by dotted names."""

    changes: JsonObject = {}
    config: Text | None = Field(default=None, max_length=1_000_000)
    """The whole config as YAML, to which `changes` are applied; values that are still masked stay as they were."""
    is_continued: bool = False
    """Start from the experiment's best checkpoint."""


class ChangeExperiment(Model):
    """Changes to an experiment; fields that are None are left unchanged."""

    name: Line | None = Field(default=None, min_length=1, max_length=200)
    description: Text | None = None
    labels: list[Line] | None = Field(default=None, max_length=1000)
    is_archived: bool | None = None
    priority: int | None = Field(default=None, ge=1, le=99)
    weight: float | None = Field(default=None, gt=0)
    max_slots: int | None = Field(default=None, ge=1)


class ScaleTrial(Model):
    """The new number of slots of a trial."""

    slots: int = Field(ge=1, le=65_536)


class Job(Model):
    """A trial that is running or waits for slots."""

    trial_id: int
    experiment_id: int
    name: str
    state: State
    slots: int
    priority: int
    weight: float
    waiting: str = ""


class ModelVersion(Model):
    """A numbered version of a model: a checkpoint."""

    number: int
    checkpoint: str
    notes: str = ""
    created_s: float


class RegisteredModel(Model):
    """A named model and its versions, the newest first."""

    name: str
    description: str = ""
    owner: str = ""
    created_s: float
    versions: list[ModelVersion] = []


class CreateModel(Model):
    """A new model."""

    name: Line = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,199}$")
    description: Text = ""


class RegisterVersion(Model):
    """The checkpoint that becomes the next version."""

    checkpoint: Line
    notes: Text = ""


class Template(Model):
    """A part of a config."""

    name: str
    config: dict[str, Any]
    owner: str = ""
    created_s: float = 0.0
    error: str = ""
    """Why its config cannot be shown."""


class SetTemplate(Model):
    """A template to add or replace."""

    name: PathName = Field(min_length=1, max_length=200)
    config: JsonObject


Role = Literal["viewer", "editor", "admin"]


class User(Model):
    """A user. Viewers read, editors create experiments and change their own, admins may do anything."""

    name: str
    role: Role
    is_active: bool = True
    created_s: float = 0.0


class CreateUser(Model):
    """A new user."""

    name: Line = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$")
    password: Secret = Field(min_length=8, max_length=1000)
    role: Role = "editor"


class ChangeUser(Model):
    """Changes to a user; fields that are None are left unchanged."""

    password: Secret | None = Field(default=None, min_length=8, max_length=1000)
    old_password: Secret | None = Field(default=None, max_length=1000)
    """Required to change one's own password."""
    role: Role | None = None
    is_active: bool | None = None


class Login(Model):
    """A name and a password."""

    name: Line = Field(max_length=100)
    password: Secret = Field(max_length=1000)


class Token(Model):
    """A token of the current user; `token` is shown only once, when it is created."""

    id: int
    description: str = ""
    created_s: float
    expires_s: float
    token: str = ""


class CreateToken(Model):
    """A new token."""

    description: Line = Field(default="", max_length=200)
    days: float = Field(default=30, gt=0, le=3660)


class ClusterNode(Model):
    """A machine that trials run on."""

    name: str
    address: str
    slots: int
    gpus: int
    trials: list[int]
    """The trials that have processes there."""


class ClusterInfo(Model):
    """The control plane and what it runs."""

    version: str
    pid: int
    slots: int
    free_slots: int
    running_trials: int
    queued_trials: int
    active_experiments: int
    engine: str = "local"
    nodes: list[ClusterNode] = Field(default_factory=list)


class ErrorBody(Model):
    """Why a request failed: the name of the exception and its message."""

    kind: str
    message: str
