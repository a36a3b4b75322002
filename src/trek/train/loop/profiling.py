"""A torch profiler trace of some batches of a run, in a file for Perfetto or Chrome's tracing page."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from trek.train.loop.progress import print_above_bars
from trek.train.settings import ProfileSettings


class Profiler:
    """Starts and ends the trace at the configured batches."""

    def __init__(self, settings: ProfileSettings) -> None:
        self._settings = settings
        self._profile: profile | None = None

    def boundaries(self) -> tuple[int, int]:
        """Numbers of batches after which the trace starts and ends."""
        return self._settings.first - 1, self._settings.last

    def advance(self, batches: int) -> None:
        """Start or end the trace, if due after `batches`."""
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
        """End the trace, if one is running, and write it."""
        if self._profile is not None:
            self._profile.stop()
            path = Path(self._settings.path or "profile.json")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._profile.export_chrome_trace(str(path))
            print_above_bars(
                f"trek: wrote the trace of batches {self._settings.first} to {self._settings.last} to {path}."
            )
            self._profile = None
