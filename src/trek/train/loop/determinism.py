"""Determinism: torch's own switches for algorithms that give the same bits every time, and putting them back."""

from __future__ import annotations

import os

import torch

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


class Determinism:
    """On from here to `close`. An operation that has no deterministic algorithm raises."""

    def __init__(self) -> None:
        self._was_on = torch.are_deterministic_algorithms_enabled()
        self._warned_only = torch.is_deterministic_algorithms_warn_only_enabled()
        self._searched = torch.backends.cudnn.benchmark
        self._set_variable = _CUBLAS not in os.environ
        os.environ.setdefault(_CUBLAS, ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False

    def close(self) -> None:
        """Put the switches back to where they were."""
        torch.use_deterministic_algorithms(self._was_on, warn_only=self._warned_only)
        torch.backends.cudnn.benchmark = self._searched
        if self._set_variable:
            os.environ.pop(_CUBLAS, None)
