"""Checkpoint: opened by folder, by URL, or by its id in the control plane, and loaded with the code that trained it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trek.client.client import Client
from trek.errors import NotFound
from trek.experiments.config import ExperimentConfig
from trek.experiments.entrypoint import load_entrypoint
from trek.experiments.package import unpack_once
from trek.system.home import trek_home
from trek.system.urls import is_remote
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, open_checkpoint

if TYPE_CHECKING:
    from torch import nn

    from trek.train.trial import Trial

_ID = re.compile(r"[0-9a-f]{4,8}(-[0-9a-f-]*)?")


class Checkpoint(CheckpointFolder):
    """One checkpoint, given by its folder, its URL, or the beginning of its id in the control plane.

    For an id, `client` is the control plane to ask, by default the one that commands use. Files that are not on this
    machine are downloaded once to `$TREK_HOME/downloads`.
    """

    def __init__(self, place: Path | str, *, client: Client | None = None) -> None:
        self._client: Client | None = None
        self._experiment_id: int | None = None
        if isinstance(place, str) and is_id(place):
            place = self._fetch(place, client or Client())
        elif isinstance(place, str) and is_remote(place):
            place = open_checkpoint(place).path
        super().__init__(place)

    def load(self, trial_class: type[Trial] | None = None, *, trust_code: bool = False) -> nn.Module:
        """The trained model in evaluation mode, verified by checksum.

        It is built by `trial_class`, or by the class that the checkpoint names if this program has imported it. With
        `trust_code`, code may be run that came with the checkpoint: that of its experiment if it was given by id, else
        the module that it names.
        """
        if trial_class is None and trust_code and self._client is not None and self._experiment_id is not None:
            trial_class = _trial_class(self._client, self._experiment_id)
        return self.load_model(trial_class, trust_code=trust_code)

    def _fetch(self, uuid: str, client: Client) -> Path:
        found = client.checkpoint(uuid)
        if found.is_deleted:
            raise NotFound(f"the files of checkpoint {found.uuid} were deleted.")
        self._client, self._experiment_id = client, found.experiment_id
        path = Path(found.path)
        if not path.is_dir():
            path = trek_home() / "downloads" / found.uuid
            if not path.is_dir():
                client.download_checkpoint(found.uuid, path)
        return path


def is_id(place: str) -> bool:
    """Whether `place` is the beginning of a checkpoint's id, and not a folder or URL."""
    return _ID.fullmatch(place) is not None and not Path(place).exists()


def fetch_code(client: Client, experiment_id: int) -> tuple[Path, str] | None:
    """The folder with an experiment's code and its Trial, `module:Class`; None for a command, which has none."""
    details = client.experiment(experiment_id)
    config = ExperimentConfig.parse(details.config)
    if config.command is not None:
        return None
    code = trek_home() / "downloads" / f"code-{details.archive[:16]}"
    unpack_once(client.archive(details.archive), code)
    return code, config.trial_class


def _trial_class(client: Client, experiment_id: int) -> type[Trial] | None:
    """The Trial of an experiment, from its archive; None for a command, which has none."""
    found = fetch_code(client, experiment_id)
    if found is None:
        return None
    code, trial_class = found
    with _isolated_import(trial_class.partition(".")[0].partition(":")[0]):
        return load_entrypoint(trial_class, code)


@contextmanager
def _isolated_import(module: str) -> Iterator[None]:
    """Import within the block as if no module of this name had been imported, and restore everything after it."""
    path = list(sys.path)
    names = [name for name in sys.modules if name == module or name.startswith(f"{module}.")]
    before = {name: sys.modules.pop(name) for name in names}
    try:
        yield
    finally:
        sys.path[:] = path
        for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
            del sys.modules[name]
        sys.modules.update(before)
