"""`pq.mlflow`: the run of a training in MLflow, over `trek.integrations.mlflow_run`.

What is recorded is sent off the training thread and by the first process alone; a server that is slow or gone does not
end a training. What is read is asked for at once.
"""

from __future__ import annotations

import os
import re
import uuid
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import trek
from trek.compat.pytorch_quik import io
from trek.compat.pytorch_quik.arg import complete
from trek.errors import InputError, NotFound, OutsideError
from trek.integrations.mlflow import open_client
from trek.integrations.mlflow_run import MLflowRun

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ENDPOINT = "MLFLOW_S3_ENDPOINT_URL"


@dataclass
class MlfKwargs:
    """Where and how a run is recorded."""

    tracking_uri: str
    endpoint_url: str | None
    experiment: str
    user: str
    use_ray: bool
    is_parent: bool
    parent_run: str
    """A name that all runs nested in one run have in common."""


class QuikMlflow:
    """A run of MLflow, and the runs of its experiment.

    With `args.is_parent`, it is a run that others are nested in: those whose `args.parent_run` is that of `mlfkwargs`.
    """

    def __init__(self, args: Namespace) -> None:
        given = complete(args)
        is_parent = bool(getattr(given, "is_parent", False))
        self.mlfkwargs = MlfKwargs(
            tracking_uri=given.tracking_uri,
            endpoint_url=given.endpoint_url,
            experiment=given.experiment,
            user=given.user,
            use_ray=given.use_ray_tune,
            is_parent=is_parent,
            parent_run=getattr(given, "parent_run", None) or (uuid.uuid4().hex if is_parent else ""),
        )
        self.tags: dict[str, str] = {"mlflow.user": given.user}
        self.run: MLflowRun | None = None
        """What is recorded to; None before `create_run`, and on every process but the first."""
        self._records = trek.World.from_env().is_leader and not is_parent
        self._is_created = False

    # -- recording

    def create_run(self, params: Sequence[Any]) -> None:
        """Begin a run with these parameters: dataclasses or mappings.

        A parent is opened by the first run that is nested in it.
        """
        self._is_created = True
        if self._records:
            endpoint = self.mlfkwargs.endpoint_url
            self.run = MLflowRun(
                tracking_uri=self.mlfkwargs.tracking_uri,
                experiment=self.mlfkwargs.experiment,
                parent=self.mlfkwargs.parent_run,
                tags=self.tags,
                variables={_ENDPOINT: endpoint} if endpoint else {},
            )
        self.log_parameters(params)

    def add_tags(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Add tags to those of the run, before anything is recorded; all of them."""
        self.tags |= tags
        if self.run is not None:
            self.run.describe(tags=tags)
        return dict(self.tags)

    def log_parameters(self, dclasses: Sequence[Any]) -> None:
        """Add the fields of dataclasses, or mappings, to the parameters of the run, before anything is recorded."""
        run = self._recording()
        for one in dclasses:
            values = asdict(one) if is_dataclass(one) and not isinstance(one, type) else dict(one)
            if run is not None:
                run.describe(params=values)

    def log_metric(self, key: str, metric: float, step: int | None = None) -> None:
        """Record a point of a metric; without a step, at the one after its last."""
        if (run := self._recording()) is not None:
            run.log_metric(key, float(metric), step=step)

    def log_artifact(self, filename: str | Path) -> None:
        """Upload a file, which must stay where it is until the run has ended."""
        if (run := self._recording()) is not None:
            run.log_file(filename)

    def update_run_status(self, status: str) -> None:
        """End the run as FINISHED, FAILED, KILLED or SCHEDULED."""
        if (run := self._recording()) is not None:
            run.set_status(status)

    def end_run(self) -> None:
        """End the run, FINISHED unless it was told otherwise, and wait until it is recorded, for a limited time."""
        if (run := self._recording()) is not None:
            run.finish()

    def _recording(self) -> MLflowRun | None:
        if not self._is_created:
            raise InputError("there is no run. Call create_run first.")
        return self.run

    # -- reading

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's own client."""
        return open_client(self.mlfkwargs.tracking_uri)

    def search_runs(
        self,
        filter_string: str | None = None,
        max_results: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """The runs of the experiment by their ids, newest first: `info` and `data` (params, metrics, tags) of each."""
        order = [order_by] if isinstance(order_by, str) else list(order_by or ())
        with _answered(self.mlfkwargs.tracking_uri):
            experiment = self.client.get_experiment_by_name(self.mlfkwargs.experiment)
            if experiment is None:
                raise NotFound(f"experiment {self.mlfkwargs.experiment!r} not found in MLflow. Set args.experiment.")
            found = self.client.search_runs(
                [experiment.experiment_id], filter_string or "", max_results=max_results or 1000, order_by=order or None
            )
        return {str(run.info.run_id): run.to_dictionary() for run in found}

    def get_state_dict(
        self,
        test_epoch: int | str,
        run_id: str | None = None,
        filter_string: str | None = None,
        ioargs: Namespace | None = None,
        serve_path: str | Path | None = None,
    ) -> str:
        """Download the weights after an epoch of a run, by default the newest that fits; the date in the file's name.

        They go to `serve_path`, or where `pq.io` finds them for `ioargs`.
        """
        chosen = run_id or self._newest(filter_string)
        folder = Path(serve_path) if serve_path is not None else io.id_str("", ioargs or Namespace()).parent
        folder.mkdir(parents=True, exist_ok=True)
        with _answered(self.mlfkwargs.tracking_uri), _endpoint(self.mlfkwargs.endpoint_url):
            name, date = _weights_of([one.path for one in self.client.list_artifacts(chosen)], test_epoch, chosen)
            self.client.download_artifacts(chosen, name, str(folder))
        return date

    def _newest(self, filter_string: str | None) -> str:
        found = self.search_runs(filter_string, max_results=1)
        if not found:
            raise NotFound(
                f"no run in {self.mlfkwargs.experiment!r} fits {filter_string or 'any filter'!r}. "
                "Pass a run_id, or another filter_string."
            )
        return next(iter(found))


def _weights_of(names: Sequence[str], epoch: int | str, run_id: str) -> tuple[str, str]:
    """The artifact with the weights after `epoch`, and the date in its name: see `pq.io.id_str`."""
    form = re.compile(rf"state_dict_(?:.*_)?e{re.escape(str(epoch))}_(?P<date>[^_.]+)(?:_.*)?\.pt")
    found = [(name, fits["date"]) for name in names if (fits := form.fullmatch(PurePosixPath(name).name))]
    if not found:
        kept = ", ".join(names) or "no artifacts"
        raise NotFound(f"run {run_id} has no weights of epoch {epoch}, but {kept}. Save them with save_state_dict.")
    return found[-1]


@contextmanager
def _answered(tracking_uri: str) -> Iterator[None]:
    """OutsideError for what MLflow could not answer."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        raise OutsideError(f"MLflow at {tracking_uri} did not answer: {error}") from error


@contextmanager
def _endpoint(url: str | None) -> Iterator[None]:
    """MLflow reads the address of an S3 store from the environment alone."""
    before = os.environ.get(_ENDPOINT)
    if url:
        os.environ[_ENDPOINT] = url
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_ENDPOINT, None)
        else:
            os.environ[_ENDPOINT] = before
