"""Lookup: values to their place in a vocabulary, given or learnt; what is not in it, or missing, is 0."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trek.data.preparation.base import Layer, Values, require_fitted
from trek.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


class Lookup(Layer):
    """Ids 1 to n for the words of the vocabulary, the most frequent first; 0 for everything else."""

    def __init__(
        self, vocabulary: Sequence[str | int] | None = None, *, max_size: int | None = None, min_count: int = 1
    ) -> None:
        super().__init__()
        self._words: tuple[str | int, ...] = ()
        self._index: pd.Index[Any] | None = None
        self.max_size = max_size
        self.min_count = min_count
        self.vocabulary = list(vocabulary or ())
        self._is_given = vocabulary is not None
        self.begin()

    @property
    def vocabulary(self) -> list[str | int]:
        """The words in the order of their ids; assign another list to change it."""
        return list(self._words)

    @vocabulary.setter
    def vocabulary(self, words: Sequence[str | int]) -> None:
        repeated = next((word for word, count in Counter(words).items() if count > 1), None)
        if repeated is not None:
            raise InputError(f"the vocabulary has {repeated!r} more than once. Every word needs an id of its own.")
        self._words, self._index = tuple(words), None

    @property
    def num_ids(self) -> int:
        """Words, and one for everything else."""
        return len(self._words) + 1

    def begin(self) -> None:
        """Forget what was observed."""
        self._counts: Counter[str | int] = Counter()

    def observe(self, values: np.ndarray) -> None:
        """Count the words."""
        self._counts.update(word for word in _words(values) if word is not None)

    def settle(self) -> None:
        """Keep the most frequent words, equally frequent ones in their own order, unless words were given."""
        if not self._is_given:
            ranked = sorted(self._counts.items(), key=lambda item: (-item[1], str(item[0])))
            self.vocabulary = [word for word, count in ranked if count >= self.min_count][: self.max_size]
        self.begin()

    def forward(self, values: Values) -> torch.Tensor:
        """Ids, int64."""
        require_fitted(self, is_fitted=bool(self._words))
        import pandas as pd

        array = values.cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
        if self._index is None:
            self._index = pd.Index(self._words, dtype=object)
        ids = self._index.get_indexer(pd.Index(_words(array), dtype=object)).reshape(array.shape) + 1
        device = values.device if isinstance(values, torch.Tensor) else None
        return torch.from_numpy(ids.astype(np.int64)).to(device)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_index": None}

    def get_extra_state(self) -> torch.Tensor:
        """The vocabulary as bytes in a tensor, which every safe way of saving can hold."""
        return torch.tensor(list(json.dumps(self.vocabulary).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        """Restore the vocabulary."""
        self.vocabulary = json.loads(bytes(state.tolist()).decode())


def _words(values: np.ndarray) -> list[str | int | None]:
    """Plain Python words; missing ones None, whole floats (integers with missing ones among them) as integers."""
    words: list[Any] = values.reshape(-1).tolist()
    if values.dtype.kind == "f":
        return [None if word != word else int(word) if word == int(word) else word for word in words]
    return words
