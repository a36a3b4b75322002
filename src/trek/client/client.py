"""Client: the REST API of a control plane as typed calls. Used by the command line, by trials and by scripts.

Contracts: a Client may be used from several threads. Every call raises the kind of TrekError that the control plane
names, or MasterUnreachable if there is no answer.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, TypeAlias, TypeVar
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from trek import errors
from trek.client import models
from trek.client.files import unpack_files
from trek.client.flow_calls import FlowCalls
from trek.client.session_models import SessionLink
from trek.client.tar_stream import tar_stream
from trek.client.wire_values import segment
from trek.errors import MasterUnreachable, TrekError

T = TypeVar("T", bound=BaseModel)
Content: TypeAlias = bytes | Callable[[], Iterable[bytes]] | None
"""The body of a request: bytes, or what gives its parts, anew for each attempt."""
STORING_S = 600.0
"""How long the control plane may take to answer after a checkpoint was sent: it checks every file."""


@dataclass(frozen=True)
class Address:
    """Where a control plane listens, and the token to send."""

    url: str
    token: str = ""


def _verification(url: str) -> ssl.SSLContext | bool:
    """How to check certificates. Reading all authorities takes 50 ms, and plain HTTP needs none.

    A control plane that moved is found by an address file, and those name plain HTTP alone.
    """
    return url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Client(FlowCalls):
    """A control plane: the one at `address`, else at TREK_MASTER, else that of this machine, started if necessary.

    `relocate` finds the new address when the old one no longer answers.
    """

    def __init__(
        self,
        address: Address | str | None = None,
        *,
        engine: str | None = None,
        timeout_s: float = 30.0,
        relocate: Callable[[], Address | None] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not isinstance(address, Address):
            from trek.client.discovery import find_control_plane

            address, relocate = find_control_plane(address, engine=engine)
        self._address = address
        self._relocate = relocate
        self._http = httpx.Client(
            timeout=timeout_s, transport=transport, trust_env=False, verify=_verification(address.url)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @property
    def url(self) -> str:
        """The address of the control plane."""
        return self._address.url

    # experiments

    def upload_archive(self, data: bytes, *, sha256: str) -> None:
        """Upload the archive of a model folder, unless the control plane has it."""
        if self._send("GET", f"/archives/{sha256}/exists").json() is not True:
            self._send("PUT", f"/archives/{sha256}", content=data)

    def archive(self, sha256: str) -> bytes:
        """The archive of a model folder."""
        return self._send("GET", f"/archives/{sha256}").content

    def create_experiment(
        self,
        *,
        config: dict[str, Any],
        archive: str,
        provenance: dict[str, Any] | None = None,
    ) -> models.ExperimentDetails:
        """Create an experiment from a config and an uploaded archive."""
        request = models.CreateExperiment(config=config, archive=archive, provenance=provenance or {})
        return self._one(models.ExperimentDetails, "POST", "/experiments", body=request)

    def fork_experiment(
        self, experiment_id: int, *, changes: dict[str, Any] | None = None, is_continued: bool = False
    ) -> models.ExperimentDetails:
        """Run an experiment again with changes, from the start or from its best checkpoint."""
        body = models.ForkExperiment(changes=changes or {}, is_continued=is_continued)
        return self._one(models.ExperimentDetails, "POST", f"/experiments/{experiment_id}/fork", body=body)

    def experiments(self, *, page: int = 1000) -> list[models.ExperimentRecord]:
        """All experiments, the newest first, fetched in pages of `page`."""
        return self._pages(models.ExperimentRecord, "/experiments", page=page)

    def experiment(self, experiment_id: int) -> models.ExperimentDetails:
        """One experiment with its trials."""
        return self._one(models.ExperimentDetails, "GET", f"/experiments/{experiment_id}")

    def kill_experiment(self, experiment_id: int) -> models.ExperimentDetails:
        """End an experiment."""
        return self._one(models.ExperimentDetails, "POST", f"/experiments/{experiment_id}/kill")

    def pause_experiment(self, experiment_id: int) -> models.ExperimentDetails:
        """Let running trials save and release their slots."""
        return self._one(models.ExperimentDetails, "POST", f"/experiments/{experiment_id}/pause")

    def activate_experiment(self, experiment_id: int) -> models.ExperimentDetails:
        """Let a paused experiment run again."""
        return self._one(models.ExperimentDetails, "POST", f"/experiments/{experiment_id}/activate")

    def change_experiment(self, experiment_id: int, **changes: Any) -> models.ExperimentDetails:
        """Set name, description, labels, is_archived, priority, weight or max_slots."""
        body = _checked(models.ChangeExperiment, **changes)
        return self._one(models.ExperimentDetails, "PATCH", f"/experiments/{experiment_id}", body=body)

    def delete_experiment(self, experiment_id: int) -> None:
        """Delete an ended experiment with all its records and files."""
        self._send("DELETE", f"/experiments/{experiment_id}")

    def experiment_logs(self, experiment_id: int, **query: Any) -> list[models.LogLine]:
        """Lines of all trials: at most `limit` after the line with the id `after`, or the last `tail`.

        `text`, `rank`, `level` (or more severe), `since` and `until` (seconds since 1970) select lines.
        """
        return self._logs(f"/experiments/{experiment_id}/logs", **query)

    # trials

    def trials(self, experiment_id: int, *, limit: int | None = None) -> list[models.TrialRecord]:
        """The trials of an experiment in the order they were created."""
        return self._pages(models.TrialRecord, f"/experiments/{experiment_id}/trials", limit=limit)

    def trial(self, trial_id: int) -> models.TrialRecord:
        """One trial."""
        return self._one(models.TrialRecord, "GET", f"/trials/{trial_id}")

    def kill_trial(self, trial_id: int) -> models.TrialRecord:
        """End one trial."""
        return self._one(models.TrialRecord, "POST", f"/trials/{trial_id}/kill")

    def scale_trial(self, trial_id: int, *, slots: int) -> models.TrialRecord:
        """Change a trial's number of slots; a running one saves and resumes with them, an elastic one just goes on."""
        body = _checked(models.ScaleTrial, slots=slots)
        return self._one(models.TrialRecord, "POST", f"/trials/{trial_id}/scale", body=body)

    def worker_changes(self, trial_id: int) -> list[models.WorkerChange]:
        """The workers of an elastic trial that joined and left, in order."""
        return self._many(models.WorkerChange, f"/trials/{trial_id}/workers")

    def trial_metrics(
        self, trial_id: int, *, group: str | None = None, max_points: int | None = None
    ) -> list[models.MetricPoint]:
        """A trial's reports in order; with `max_points` long series are downsampled, every extreme included."""
        query = {"group": group, "max_points": max_points}
        found = self._pages(models.MetricPoint, f"/trials/{trial_id}/metrics", query=query, page=20_000)
        return sorted(found, key=lambda point: (point.batches, point.group))

    def trial_logs(self, trial_id: int, **query: Any) -> list[models.LogLine]:
        """Lines of one trial, selected as in `experiment_logs`."""
        return self._logs(f"/trials/{trial_id}/logs", **query)

    def assignment(self, trial_id: int, *, run: int) -> models.Assignment:
        """What a process of a trial needs to train."""
        return self._one(models.Assignment, "GET", f"/trials/{trial_id}/assignment", query={"run": run})

    def report(self, trial_id: int, report: models.Report) -> models.ReportReply:
        """Report metrics, checkpoints and progress; the reply says whether to stop."""
        return self._one(models.ReportReply, "POST", f"/trials/{trial_id}/reports", body=report)

    def own_checkpoints(self, trial_id: int, *, run: int) -> list[str]:
        """The names of the complete checkpoints of the trial that this process belongs to."""
        reply = self._send("GET", f"/trials/{trial_id}/checkpoints", query={"run": run})
        return TypeAdapter(list[str]).validate_json(reply.content)

    def store_checkpoint(self, trial_id: int, name: str, folder: Path, *, run: int) -> str:
        """Send the files of a checkpoint of this process's trial while they are read; returns where it is stored."""
        path = f"/trials/{trial_id}/checkpoints/{segment(name)}"
        reply = self._send("PUT", path, query={"run": run}, content=lambda: tar_stream(folder), timeout_s=STORING_S)
        return models.StoredCheckpoint.model_validate_json(reply.content).path

    def fetch_own_checkpoint(
        self, trial_id: int, name: str | None, target: Path, *, run: int, only: str | None = None
    ) -> None:
        """Download a checkpoint of this process's trial, or its file `only`, into `target`, which must not exist yet.

        The name None is the checkpoint that the trial starts from.
        """
        which = "start-checkpoint" if name is None else f"checkpoints/{segment(name)}"
        query = urlencode({"run": run, **({} if only is None else {"only": only})})
        self._download(f"/trials/{trial_id}/{which}/files?{query}", target)

    def artifacts(self, trial_id: int) -> list[models.ArtifactRecord]:
        """The files that a trial keeps of its user's own, by name."""
        return self._many(models.ArtifactRecord, f"/trials/{trial_id}/artifacts")

    def put_artifact(self, trial_id: int, name: str, content: bytes, *, run: int) -> None:
        """Keep a file of the trial that this process belongs to."""
        self._send("PUT", f"/trials/{trial_id}/artifacts", query={"name": name, "run": run}, content=content)

    def add_artifact(self, trial_id: int, name: str, content: bytes) -> None:
        """Keep a file that was made from a trial of one's own, such as a report."""
        self._send("PUT", f"/trials/{trial_id}/artifacts/file", query={"name": name}, content=content)

    def artifact(self, trial_id: int, name: str) -> bytes:
        """The content of one artifact."""
        return self._send("GET", f"/trials/{trial_id}/artifacts/file", query={"name": name}).content

    # checkpoints

    def checkpoints(
        self, *, experiment_id: int | None = None, trial_id: int | None = None, limit: int | None = None
    ) -> list[models.CheckpointRecord]:
        """Checkpoints that are still stored, the newest first."""
        query = {"experiment_id": experiment_id, "trial_id": trial_id}
        return self._pages(models.CheckpointRecord, "/checkpoints", query=query, limit=limit)

    def checkpoint(self, uuid: str) -> models.CheckpointRecord:
        """One checkpoint, by its uuid or the beginning of it."""
        return self._one(models.CheckpointRecord, "GET", f"/checkpoints/{segment(uuid)}")

    def best_checkpoint(self, experiment_id: int) -> models.BestCheckpoint:
        """The best checkpoint of an experiment, over all its trials, and why it is the best."""
        return self._one(models.BestCheckpoint, "GET", f"/experiments/{experiment_id}/best-checkpoint")

    def best_checkpoint_of_trial(self, trial_id: int) -> models.BestCheckpoint:
        """The best checkpoint of a trial, and why it is the best."""
        return self._one(models.BestCheckpoint, "GET", f"/trials/{trial_id}/best-checkpoint")

    def delete_checkpoint(self, uuid: str) -> models.CheckpointRecord:
        """Delete a checkpoint's files."""
        return self._one(models.CheckpointRecord, "DELETE", f"/checkpoints/{segment(uuid)}")

    def download_checkpoint(self, uuid: str, target: Path) -> None:
        """Download a checkpoint's files into the folder `target`, which must not exist yet."""
        self._download(f"/checkpoints/{segment(uuid)}/files", target)

    # models, templates, jobs

    def registered_models(self) -> list[models.RegisteredModel]:
        """All registered models."""
        return self._many(models.RegisteredModel, "/models")

    def registered_model(self, name: str) -> models.RegisteredModel:
        """One registered model with its versions."""
        return self._one(models.RegisteredModel, "GET", f"/models/{segment(name)}")

    def create_model(self, name: str, *, description: str = "") -> models.RegisteredModel:
        """Add a model without versions."""
        body = _checked(models.CreateModel, name=name, description=description)
        return self._one(models.RegisteredModel, "POST", "/models", body=body)

    def register_version(self, name: str, *, checkpoint: str, notes: str = "") -> models.RegisteredModel:
        """Make a checkpoint the next version of a model."""
        body = _checked(models.RegisterVersion, checkpoint=checkpoint, notes=notes)
        return self._one(models.RegisteredModel, "POST", f"/models/{segment(name)}/versions", body=body)

    def delete_model(self, name: str) -> None:
        """Delete a model; its checkpoints stay."""
        self._send("DELETE", f"/models/{segment(name)}")

    def templates(self) -> list[models.Template]:
        """All templates."""
        return self._many(models.Template, "/templates")

    def template(self, name: str) -> models.Template:
        """One template."""
        return self._one(models.Template, "GET", f"/templates/{segment(name)}")

    def set_template(self, name: str, config: dict[str, Any]) -> models.Template:
        """Add or replace a template."""
        body = _checked(models.SetTemplate, name=name, config=config)
        return self._one(models.Template, "POST", "/templates", body=body)

    def delete_template(self, name: str) -> None:
        """Delete a template."""
        self._send("DELETE", f"/templates/{segment(name)}")

    def jobs(self) -> list[models.Job]:
        """Running trials, then queued ones in the order the scheduler starts them."""
        return self._many(models.Job, "/jobs")

    # accounts

    def login(self, name: str, password: str) -> models.Token:
        """A token for a name and a password; the client uses it from now on."""
        token = self._one(models.Token, "POST", "/login", body=_checked(models.Login, name=name, password=password))
        self._address = Address(self._address.url, token.token)
        return token

    def whoami(self) -> models.User:
        """The user that the token belongs to."""
        return self._one(models.User, "GET", "/whoami")

    def users(self) -> list[models.User]:
        """All users."""
        return self._many(models.User, "/users")

    def create_user(self, name: str, *, password: str, role: models.Role = "editor") -> models.User:
        """Add a user."""
        body = _checked(models.CreateUser, name=name, password=password, role=role)
        return self._one(models.User, "POST", "/users", body=body)

    def change_user(self, name: str, **changes: Any) -> models.User:
        """Set password (one's own with old_password), role or is_active."""
        return self._one(models.User, "PATCH", f"/users/{segment(name)}", body=_checked(models.ChangeUser, **changes))

    def page_link(self, page: str = "/") -> str:
        """The address of a page that logs a browser in, once and within some minutes; keep it out of files and logs."""
        link = self._one(SessionLink, "POST", "/session-links")
        # After the #, so that browsers send it to no server and proxies do not log it.
        return f"{self._address.url}/#/login?{urlencode({'code': link.code, 'to': page})}"

    def tokens(self) -> list[models.Token]:
        """The user's tokens."""
        return self._many(models.Token, "/tokens")

    def create_token(self, *, description: str = "", days: float = 30) -> models.Token:
        """Create a token of the user."""
        body = _checked(models.CreateToken, description=description, days=days)
        return self._one(models.Token, "POST", "/tokens", body=body)

    def revoke_token(self, token_id: int) -> None:
        """Revoke one of the user's tokens."""
        self._send("DELETE", f"/tokens/{token_id}")

    # cluster

    def cluster(self) -> models.ClusterInfo:
        """The control plane and what it runs."""
        return self._one(models.ClusterInfo, "GET", "/cluster")

    def stop_cluster(self, *, kill: bool = False) -> None:
        """Shut the control plane down. Experiments resume when it starts again, unless `kill` ends them first."""
        self._send("POST", "/cluster/stop", query={"kill": kill})

    def _one(self, model: type[T], method: str, path: str, *, query: Any = None, body: BaseModel | None = None) -> T:
        content = body.model_dump_json().encode() if body is not None else None
        return model.model_validate_json(self._send(method, path, query=query, content=content).content)

    def _logs(self, path: str, *, after: int = 0, limit: int | None = None, **query: Any) -> list[models.LogLine]:
        if query.get("tail") is not None:
            return self._many(models.LogLine, path, query=query)
        return self._pages(models.LogLine, path, query={**query, "cursor": after}, limit=limit, page=5000)

    def _pages(
        self, model: type[T], path: str, *, query: Any = None, limit: int | None = None, page: int = 1000
    ) -> list[T]:
        """All items, or the first `limit`, fetched in pages of `page`."""
        found: list[T] = []
        asked = dict(query or {})
        while True:
            asked["limit"] = page if limit is None else min(page, limit - len(found))
            reply = self._send("GET", path, query=asked)
            found += TypeAdapter(list[model]).validate_json(reply.content)  # type: ignore[valid-type]
            asked["cursor"] = reply.headers.get("x-next-cursor")
            if asked["cursor"] is None or len(found) == limit:
                return found

    def _many(self, model: type[T], path: str, *, query: Any = None) -> list[T]:
        return TypeAdapter(list[model]).validate_json(self._send("GET", path, query=query).content)  # type: ignore[valid-type]

    def _send(
        self, method: str, path: str, *, query: Any = None, content: Content = None, timeout_s: float | None = None
    ) -> httpx.Response:
        params = {key: value for key, value in (query or {}).items() if value is not None}
        try:
            return self._attempt(method, path, params=params, content=content, timeout_s=timeout_s)
        except MasterUnreachable:
            moved = self._relocate() if self._relocate is not None else None
            if moved is None:
                raise
            self._address = moved
            return self._attempt(method, path, params=params, content=content, timeout_s=timeout_s)

    def _download(self, path: str, target: Path) -> None:
        with tempfile.TemporaryFile() as file:
            self._stream(path, file)
            file.seek(0)
            unpack_files(file, target)

    def _stream(self, path: str, file: IO[bytes]) -> None:
        headers = {"authorization": f"Bearer {self._address.token}"} if self._address.token else {}
        try:
            with self._http.stream("GET", f"{self._address.url}/api/v1{path}", headers=headers) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _error_of(response)
                for part in response.iter_bytes():
                    file.write(part)
        except httpx.HTTPError as error:
            raise MasterUnreachable(f"the download from {self._address.url} was interrupted: {error}.") from error

    def _attempt(
        self, method: str, path: str, *, params: Any, content: Content, timeout_s: float | None
    ) -> httpx.Response:
        address = self._address
        headers = {"authorization": f"Bearer {address.token}"} if address.token else {}
        if content is not None:
            headers["content-type"] = (
                "application/octet-stream" if path.startswith("/archives/") or callable(content) else "application/json"
            )
        try:
            response = self._http.request(
                method,
                f"{address.url}/api/v1{path}",
                params=params,
                content=content() if callable(content) else content,
                headers=headers,
                timeout=httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s,
            )
        except UnicodeEncodeError:
            raise errors.InputError("the request has text that is not valid Unicode. Check names and tokens.") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = str(error).rstrip(".") or type(error).__name__
            raise MasterUnreachable(f"no answer from the control plane at {address.url}: {why}.") from error
        if response.status_code >= 400:
            raise _error_of(response)
        return response


def _checked(model: type[T], **fields: Any) -> T:
    try:
        return model(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise errors.InputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from None


def _error_of(response: httpx.Response) -> TrekError:
    try:
        body = models.ErrorBody.model_validate(response.json())
    except ValueError:
        return MasterUnreachable(
            f"{response.url} answered {response.status_code}, but not as a Trek master does. Check the address."
        )
    kind = getattr(errors, body.kind, None)
    if isinstance(kind, type) and issubclass(kind, TrekError) and not issubclass(kind, errors.RankFailed):
        return kind(body.message)
    return errors.OutsideError(body.message)
