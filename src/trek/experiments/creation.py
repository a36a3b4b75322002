"""Creates an experiment for commands, `trek.Experiment` and flows.

The config is merged with its template, the folder packed and the entrypoint checked before anything is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trek.client.client import Client
from trek.client.models import ExperimentDetails
from trek.experiments.config import ExperimentConfig
from trek.experiments.config_merging import merge_configs, with_changes
from trek.experiments.config_spelling import respell_training
from trek.experiments.entrypoint import check_entrypoint
from trek.experiments.package import Package, pack
from trek.experiments.provenance import provenance


def create_experiment(
    config: Mapping[str, Any] | Path,
    folder: Path,
    *,
    connect: Callable[[str | None], Client],
    overrides: Mapping[str, Any] | None = None,
    template: str | None = None,
    labels: Sequence[str] = (),
    on_packed: Callable[[Package], None] = lambda package: None,
) -> ExperimentDetails:
    """Create an experiment from a config (a mapping, or the path of a YAML file) and a model folder.

    `overrides` set keys by their dotted names, `labels` are added to the config's. `connect` returns the client, given
    the engine that the config names; it is called once or twice, and only if the config is valid or a template is
    needed, so that an invalid config starts no control plane.
    """
    base = connect(None).template(template).config if template is not None else None
    parsed = _read(config, overrides=overrides or {}, template=base)
    parsed = parsed.model_copy(update={"labels": [*parsed.labels, *labels]})
    package = pack(folder)
    check_entrypoint(parsed.entrypoint, folder)
    on_packed(package)
    client = connect(parsed.engine)
    client.upload_archive(package.data, sha256=package.sha256)
    return client.create_experiment(config=parsed.sent_form(), archive=package.sha256, provenance=provenance(folder))


def connect_once(make: Callable[[str | None], Client]) -> Callable[..., Client]:
    """A function that connects when it is first called, and returns the same client ever after."""
    made: list[Client] = []

    def connect(engine: str | None = None) -> Client:
        if not made:
            made.append(make(engine))
        return made[0]

    return connect


def _read(
    config: Mapping[str, Any] | Path, *, overrides: Mapping[str, Any], template: Mapping[str, Any] | None
) -> ExperimentConfig:
    if isinstance(config, Mapping):
        merged = merge_configs(respell_training(template), respell_training(config)) if template is not None else config
        return ExperimentConfig.parse(with_changes(merged, overrides))
    settings = [f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in overrides.items()]
    return ExperimentConfig.read(config, overrides=settings, template=template)
