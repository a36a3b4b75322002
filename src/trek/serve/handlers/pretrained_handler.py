"""PretrainedHandler: a text classifier in a folder that transformers' `save_pretrained` wrote, with its tokenizer.

Code that comes with a model is never run, and weights are read from safetensors alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trek.distribution import package_missing
from trek.errors import InputError
from trek.fingerprints import digest_path
from trek.serve.handlers.archive_handler import LABELS, ArchiveHandler
from trek.serve.handlers.base import Arrays, Handler
from trek.serve.model_source import ModelSource, model_files
from trek.serve.tensor_spec import TEXT, TensorSpec
from trek.world.devices import choose_device


class PretrainedHandler(Handler):
    """Takes `text`, or `data` as the examples of TorchServe call it; returns logits."""

    def __init__(self, model: Any, tokenizer: Any, *, folder: Path) -> None:
        self._folder = folder
        self._model = model.eval()
        self._tokenizer = tokenizer
        self.inputs = [TensorSpec("text", TEXT, ())]
        self.outputs = [TensorSpec("logits", "float32", (int(model.config.num_labels),))]

    @classmethod
    def open(cls, source: ModelSource, *, device: str, number: int = 0) -> Handler:
        """Load the model. Classes are called as `index_to_name.json` says, or the model's own config."""
        folder = Path(source.address)
        made = cls.of_folder(folder, device=device, number=number)
        labels = {str(index): str(name) for index, name in made._model.config.id2label.items()}
        named = folder / LABELS
        return ArchiveHandler(made, labels=json.loads(named.read_text()) if named.is_file() else labels)

    @classmethod
    def of_folder(cls, folder: Path, *, device: str, number: int = 0) -> PretrainedHandler:
        """The model and the tokenizer in `folder`."""
        if find_spec("transformers") is None:
            raise package_missing(repr(str(folder)), "transformers", extra="hf")
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        try:
            model = AutoModelForSequenceClassification.from_pretrained(
                str(folder), use_safetensors=True, local_files_only=True
            )
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except (OSError, ValueError) as error:
            raise InputError(f"{str(folder)!r} is not a text classifier of transformers: {error}") from error
        return cls(model.to(choose_device(device, local_rank=number)), tokenizer, folder=folder)

    def __trek_fingerprint__(self) -> Any:
        """The contents of its files."""
        return [(path.name, digest_path(path)) for path in model_files(self._folder)]

    def fit(self, inputs: Mapping[str, Any]) -> Arrays:
        """The texts of one request."""
        return super().fit({"text": inputs["data"]} if inputs.keys() == {"data"} else inputs)

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """The logits of each text, cut to the longest that the model takes."""
        texts = [str(one) for one in inputs["text"].tolist()]
        limit = min(self._tokenizer.model_max_length, self._model.config.max_position_embeddings)
        encoded = self._tokenizer(texts, padding=True, truncation=True, max_length=limit, return_tensors="pt")
        with torch.inference_mode():
            logits = self._model(**encoded.to(self._model.device)).logits
        return {"logits": logits.float().cpu().numpy()}
