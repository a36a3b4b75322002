"""A torch profiler trace of some batches of a run, written where Chrome's tracing page or Perfetto can open it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from trek.errors import ConfigError


@dataclass(frozen=True)
class ProfileSettings:
    """Trace batches `first` to `last`, counted from 1, into `path`."""

    first: int
    last: int
    path: Path

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise ConfigError(f"a profile goes from batch 1 or later to a later one, got {self.first} to {self.last}.")


class Profiler:
    """Starts and ends the trace when the run gets there."""

    def __init__(self, settings: ProfileSettings) -> None:
        self._settings = settings
        self._profile: profile | None = None

    def boundaries(self) -> tuple[int, int]:
        """After how many batches there is something to do."""
        return self._settings.first - 1, self._settings.last

    def advance(self, batches: int) -> None:
        """`batches` are done."""
        first, last = self.boundaries()
        if self._profile is None and first <= batches < last:
            activities = [ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(ProfilerActivity.CUDA)
            self._profile = profile(activities=activities)
            self._profile.start()
        elif self._profile is not None and batches >= last:
            self.close()

    def close(self) -> None:
        """End the trace, early if the run ends early, and write it."""
        if self._profile is not None:
            self._profile.stop()
            self._settings.path.parent.mkdir(parents=True, exist_ok=True)
            self._profile.export_chrome_trace(str(self._settings.path))
            self._profile = None
