"""ArchiveHandler: the model of an archive that `trek archive` made. Returns predictions and logits of classifiers.

Opening an archive runs the code in it, as TorchServe does; it is unpacked defensively, and its weights are not pickled.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from trek.errors import InputError
from trek.serve.handlers.base import Arrays, Handler
from trek.serve.handlers.trial_handler import TrialHandler
from trek.serve.model_source import ModelSource
from trek.serve.tensor_spec import TEXT, TensorSpec

FACTS = "trek.json"
LABELS = "index_to_name.json"
_MAX_MEMBERS = 10_000
_MAX_BYTES = 1 << 36


class ArchiveHandler(Handler):
    """The model of an archive. A single output with a row of numbers for each row is that of a classifier."""

    def __init__(self, inner: Handler, *, labels: Mapping[str, str]) -> None:
        self._inner = inner
        self._labels = labels
        self.inputs = inner.inputs
        outputs = inner.outputs or ()
        self._is_classifier = len(outputs) == 1 and len(outputs[0].shape) == 1 and outputs[0].dtype.startswith("float")
        self.outputs = inner.outputs
        if self._is_classifier:
            kind = TEXT if labels else "int64"
            logits = TensorSpec("logits", outputs[0].dtype, outputs[0].shape)
            self.outputs = [TensorSpec("prediction", kind, ()), logits]

    @classmethod
    def open(cls, source: ModelSource, *, device: str, number: int = 0) -> Handler:
        """Unpack the archive and load its model."""
        folder = Path(tempfile.mkdtemp(prefix="trek-archive-"))
        try:
            unpack(Path(source.address), folder)
            made = cls.of_folder(folder, device=device, number=number)
        except BaseException:
            shutil.rmtree(folder)
            raise
        weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)  # its code may be imported until then
        return made

    @classmethod
    def of_folder(cls, folder: Path, *, device: str, number: int = 0) -> Handler:
        """The model of an archive that is unpacked in `folder`."""
        if (folder / "config.json").is_file():
            from trek.serve.handlers.pretrained_handler import PretrainedHandler  # loads transformers

            return PretrainedHandler.open(ModelSource("pretrained", str(folder)), device=device, number=number)
        labels = folder / LABELS
        named = json.loads(labels.read_text()) if labels.is_file() else {}
        try:
            facts = json.loads((folder / FACTS).read_text())
        except FileNotFoundError:
            raise InputError(
                "the archive was not made by `trek archive`, so Trek cannot serve it. Make one from a checkpoint, or "
                "serve it with TorchServe."
            ) from None
        source = ModelSource("checkpoint", str(folder / "checkpoint"), str(folder / "code"), facts["trial"])
        return cls(TrialHandler.open(source, device=device, number=number), labels=named)

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs of the Trial; of a classifier, the class and the logits."""
        outputs = self._inner.predict(inputs)
        if not self._is_classifier:
            return outputs
        [logits] = outputs.values()
        indices = logits.argmax(axis=1)
        if not self._labels:
            return {"prediction": indices, "logits": logits}
        names = np.empty(len(indices), dtype=object)
        names[:] = [self._labels.get(str(index), str(index)) for index in indices.tolist()]
        return {"prediction": names, "logits": logits}

    def fit(self, inputs: Mapping[str, Any]) -> Arrays:
        """As the Trial takes them."""
        return self._inner.fit(inputs)


def unpack(path: Path, target: Path) -> None:
    """Unpack an archive: regular files with plain names, within limits; InputError for any other."""
    try:
        with zipfile.ZipFile(path) as packed:
            members = [one for one in packed.infolist() if not one.is_dir()]
            if len(members) > _MAX_MEMBERS or sum(one.file_size for one in members) > _MAX_BYTES:
                raise InputError(f"the archive {str(path)!r} has too many files or bytes.")
            for member in members:
                name = PurePosixPath(member.filename)
                is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
                if name.is_absolute() or ".." in name.parts or "\\" in member.filename or is_link:
                    raise InputError(f"the archive {str(path)!r} has an unsafe member, {member.filename!r}.")
                packed.extract(member, target)
    except zipfile.BadZipFile as error:
        raise InputError(f"{str(path)!r} is not an archive: {error}.") from None
