"""The models that commands name: a folder, a URL, an archive, `module:function`, `experiment:ID`, `NAME:VERSION`.

The last two are asked of the control plane, and bring the code of their experiment with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.cli.connect import connect
from trek.errors import InputError, NotFound

if TYPE_CHECKING:
    from trek.client.client import Client
    from trek.serve.model_source import ModelSource

_REGISTERED = re.compile(r"([^/:]+):(\d+|latest)")


def model_finder(text: str, *, obj: dict[str, Any], code: Path | None, trial: str) -> Callable[[], ModelSource]:
    """Finds the model called `text`, whenever it is called: `NAME:latest` may be another one then."""
    from trek.serve.model_source import ModelSource

    registered = _REGISTERED.fullmatch(text)
    if registered is None or Path(text).exists():
        return lambda: ModelSource.parse(text, code=code, trial=trial)

    def find() -> ModelSource:
        with connect(obj) as client:
            if registered[1] == "experiment":
                uuid = client.best_checkpoint(int(registered[2])).uuid
            else:
                uuid = _version(client, registered[1], registered[2])
            return source_of_checkpoint(client, uuid, code=code, trial=trial)

    return find


def _version(client: Client, name: str, number: str) -> str:
    versions = client.registered_model(name).versions
    found = next((one for one in versions if number in ("latest", str(one.number))), None)
    if found is None:
        known = ", ".join(str(one.number) for one in versions) or "none"
        raise NotFound(f"model {name!r} has no version {number}. It has: {known}.")
    return found.checkpoint


def source_of_checkpoint(client: Client, uuid: str, *, code: Path | None, trial: str) -> ModelSource:
    """A checkpoint of the control plane, with the code of its experiment unless `code` is given."""
    from trek.experiments.checkpoint import Checkpoint, fetch_code
    from trek.serve.model_source import ModelSource

    checkpoint = Checkpoint(uuid, client=client)
    if code is not None:
        return ModelSource.parse(checkpoint.path, code=code, trial=trial)
    packed = fetch_code(client, client.checkpoint(uuid).experiment_id)
    if packed is None:
        raise InputError(
            f"checkpoint {uuid} was written by a command, which says nothing about how its model is called. "
            "Serve module:function instead."
        )
    return ModelSource.parse(checkpoint.path, code=packed[0], trial=trial or packed[1])
