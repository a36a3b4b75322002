"""StartLimits: how long the starter of a job goes on starting workers that do not come so far as to train.

Pure: the time is an argument. A slow start is not a crash loop, so being killed counts by number and time together, and
only while too few train. What a program brings upon itself counts by number alone. Losses of members that train are the
coordinator's to count; see `membership`.
"""

from __future__ import annotations

import signal

from trek.elastic.membership_settings import MembershipSettings

PAUSE_S = 30.0
"""Between two starts, once too many workers were killed before they joined."""
_CRASHES = {-number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)}
"""Codes of processes that a signal ended which their own program had caused."""


class StartLimits:
    """Those of one job."""

    def __init__(self, settings: MembershipSettings) -> None:
        self._settings = settings
        self._generation = 0
        self._num_advances = 0
        self._num_crashed = 0
        """Workers that crashed since the job completed something."""
        self._num_killed = 0
        """Workers that were killed before they joined, since the last generation was formed."""
        self._futile_since_s = 0.0
        """When the first of them was killed, or when enough workers trained last."""
        self._started_s = 0.0

    def follow(self, generation: int, num_advances: int, *, num_training: int, now_s: float) -> None:
        """Take note of how far the job is."""
        if num_advances != self._num_advances:
            self._num_advances, self._num_crashed = num_advances, 0
        if generation != self._generation:
            self._generation, self._num_killed = generation, 0
        if num_training >= self._settings.min_workers:
            self._futile_since_s = now_s

    def note_end(self, code: int, *, has_joined: bool, now_s: float) -> None:
        """A worker has ended, and will be replaced."""
        if code in _CRASHES:
            self._num_crashed += 1
        elif not has_joined:
            if not self._num_killed:
                self._futile_since_s = now_s
            self._num_killed += 1

    @property
    def is_crashing(self) -> bool:
        """Whether the program ends the job: its workers crash, again and again, and complete nothing."""
        return self._num_crashed > self._settings.max_losses

    def futility(self, now_s: float) -> str:
        """Why the job cannot go on, in words: its workers are killed before they join. Empty if it can."""
        futile_s = now_s - self._futile_since_s
        if not self._is_many_killed or futile_s <= self._settings.loss_s:
            return ""
        return f"{self._num_killed} workers were killed before they joined the others, for {futile_s:.0f} s"

    def may_start(self, now_s: float) -> bool:
        """Whether to start another worker now; if so, it counts as started."""
        if self._is_many_killed and now_s - self._started_s < PAUSE_S:
            return False
        self._started_s = now_s
        return True

    @property
    def _is_many_killed(self) -> bool:
        return self._num_killed > self._settings.max_losses
