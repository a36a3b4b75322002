"""MLflow as a logger: `loggers=["mlflow"]`. Needs the `mlflow` extra.

Owns the settings; what is sent to MLflow is in `mlflow_recorder`, which runs in a process of its own, so that neither
MLflow's import nor a server that is slow or gone concerns training.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trek.distribution import package_missing
from trek.errors import ConfigError
from trek.train.loggers import BackgroundLogger

if TYPE_CHECKING:
    from mlflow import MlflowClient


class MLflowLogger(BackgroundLogger):
    """One MLflow run for a job, however often it is resumed; trials of an experiment are nested in a run of its own.

    `tracking_uri` and `experiment` are by default MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME, or the name of the
    Trek experiment, or "trek". `run_id` continues that run. `tags` are added. With `models`, the last checkpoint is
    logged as a model that `mlflow.pyfunc.load_model` opens; it must be in a local folder.
    """

    recorder: ClassVar[str] = "trek.integrations.mlflow_recorder:MLflowRecorder"
    word: ClassVar[str] = "MLflow"
    environment: ClassVar[Mapping[str, str]] = {
        # Retries are the recorder's: a request that is not answered soon is made again.
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        experiment: str | None = None,
        run_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        models: bool = False,
        **limits: Any,
    ) -> None:
        check_installed("logger 'mlflow'")
        super().__init__(
            tracking_uri=tracking_uri,
            experiment=experiment,
            run_id=run_id,
            tags=checked_tags(tags or {}),
            models=models,
            **limits,
        )

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        tracking_uri: str | None = None,
        experiment: str | None = None,
        run_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        models: bool = False,
    ) -> MLflowLogger:
        """The settings; nothing is written to `folder`."""
        return cls(tracking_uri=tracking_uri, experiment=experiment, run_id=run_id, tags=tags, models=models)


def open_client(tracking_uri: str | None = None) -> MlflowClient:
    """MLflow's own client, to read what was recorded."""
    check_installed("reading from MLflow")
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri)


def check_installed(what: str) -> None:
    """InputError if MLflow, which `what` needs, is not installed."""
    if find_spec("mlflow") is None:
        raise package_missing(what, "mlflow", extra="mlflow")


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """`tags`, if all of them are text; ConfigError otherwise."""
    for name, value in tags.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ConfigError(f"tags of MLflow must be text by name, got {name!r}: {value!r}.")
    return dict(tags)
