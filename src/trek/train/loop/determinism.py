"""Determinism: sets torch's switches for deterministic algorithms, and restores them."""

from __future__ import annotations

import os

import torch

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


class Determinism:
    """In effect until `close`. An operation without a deterministic algorithm raises an error."""

    def __init__(self) -> None:
        self._was_on = torch.are_deterministic_algorithms_enabled()
        self._warned_only = torch.is_deterministic_algorithms_warn_only_enabled()
        self._searched = torch.backends.cudnn.benchmark
        self._set_variable = _CUBLAS not in os.environ
        os.environ.setdefault(_CUBLAS, ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False

    def close(self) -> None:
        """Restore the switches."""
        torch.use_deterministic_algorithms(self._was_on, warn_only=self._warned_only)
        torch.backends.cudnn.benchmark = self._searched
        if self._set_variable:
            os.environ.pop(_CUBLAS, None)
