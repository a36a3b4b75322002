"""Every exception Trek raises on purpose, and the exit code each one maps to.

    TrekError                         3
    ├── InputError (ValueError)       2   the caller's mistake: what, the value, the remedy
    │   ├── ConfigError               2   a configuration file or setting
    │   ├── EntrypointError           2   `module:Class` that cannot be loaded or is not a Trial
    │   ├── NotFound                  2   nothing with that id or name exists
    │   ├── PortInUse                 2   another program listens on the port
    │   └── NotAllowed                2   a login is missing, wrong, or may not do this
    │       ├── TooManyRequests       2   too many attempts; may be repeated after a while
    │       └── RunEnded              2   the token of a trial's run that has ended or was replaced
    ├── TrainingError                 1   the user's own code failed; carries its traceback
    │   └── RankFailed                1   a process of a gang died or raised
    └── OutsideError                  3   something outside Trek failed
        ├── DataUnavailable           3   a download failed, or its contents are wrong
        ├── StorageError              3   a disk is full, a folder cannot be written
        ├── CheckpointError           3   a checkpoint is damaged or does not fit
        ├── NoRoom                    3   a cluster had no room for a gang for as long as it was waited for
        ├── StartCancelled            3   the start of a gang was cancelled while it waited
        └── MasterUnreachable         3   no answer from the control plane

`InvalidHP` is not an error: a Trial raises it to reject its hyperparameters.
"""

from __future__ import annotations


class TrekError(Exception):
    """Base of everything Trek raises on purpose."""

    exit_code = 3


class InputError(TrekError, ValueError):
    """The caller asked for something impossible; the message holds the remedy."""

    exit_code = 2


class ConfigError(InputError):
    """A configuration file or a setting is wrong."""


class EntrypointError(InputError):
    """An entrypoint cannot be imported or is not a Trial."""


class NotFound(InputError):
    """Nothing with the id or name asked for exists."""


class PortInUse(InputError):
    """Another program listens on the port asked for."""


class NotAllowed(InputError):
    """The login is missing, wrong, or may not do this."""


class TooManyRequests(NotAllowed):
    """There were too many attempts; `retry_after_s` says when another one may succeed."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RunEnded(NotAllowed):
    """The run of a trial that sent the request has ended, was replaced by another one, or was deleted."""


class TrainingError(TrekError):
    """The user's own code failed. `traceback_text` holds the user's frames and nothing of ours."""

    exit_code = 1

    def __init__(self, message: str, *, traceback_text: str = "") -> None:
        super().__init__(message)
        self.traceback_text = traceback_text


class RankFailed(TrainingError):
    """A process of a gang died or raised; `rank` says which, `process_exit_code` how (negative: by that signal)."""

    def __init__(self, message: str, *, rank: int, process_exit_code: int | None, traceback_text: str = "") -> None:
        super().__init__(message, traceback_text=traceback_text)
        self.rank = rank
        self.process_exit_code = process_exit_code


class OutsideError(TrekError):
    """Something outside Trek failed: network, disk, another program."""


class DataUnavailable(OutsideError):
    """Data could not be fetched, or its contents are wrong."""


class StorageError(OutsideError):
    """A file could not be written: full disk, read-only folder."""


class CheckpointError(OutsideError):
    """A checkpoint is incomplete, was altered, or does not fit what loads it."""


class NoRoom(OutsideError):
    """A cluster had no room for a gang in time; `is_own_limit` says whether the user set that time."""

    def __init__(self, message: str, *, is_own_limit: bool) -> None:
        super().__init__(message)
        self.is_own_limit = is_own_limit


class StartCancelled(OutsideError):
    """The start of a gang was cancelled while it waited for room; nothing of the gang is left."""


class MasterUnreachable(OutsideError):
    """The control plane did not answer."""


class InvalidHP(Exception):
    """Raised by a Trial to reject its hyperparameters; the Searcher replaces the trial."""
