"""WorkerGroup: the processes that train together, as the loop sees them.

Here it is a group whose members stay the same, so that everything done together simply happens. `elastic_group` is one
whose members come and go: there, what was interrupted is done again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from trek.train.loop.run_state import RunState

T = TypeVar("T")


class Part:
    """A part of the loop that all members go through at the same place; done once all of them have."""

    def __init__(self) -> None:
        self.is_done = False
        self.result: Any = None

    def end(self, result: Any) -> None:
        """It is done, with this result on every member."""
        self.is_done, self.result = True, result


class Rewound(Exception):
    """The group has changed in the middle of a step: its batches are read again, and what was due after them follows.

    Raised where workers do something together between batches; caught where batches are read.
    """


class WorkerGroup:
    """A group whose members stay the same."""

    is_elastic = False
    is_in_batch = False
    """Whether the caller's code is at work on a batch."""
    is_interrupted = False
    """Whether the batch that the caller's code is at work on must be done again, because the group broke in it."""
    wants_meeting = False
    """Whether somebody is to join or to leave at the next step boundary."""

    def join(self, start: Callable[[bool], T], *, state: RunState, begin_generation: Callable[[], None]) -> T | None:
        """Called before anything is done together.

        `start` restores `state` from a checkpoint, if there is one; its argument says whether the job has begun before.
        `begin_generation` is called when the group has other members.
        """
        del state, begin_generation
        return start(False)

    def part(self, name: str) -> Part:
        """The part of the loop that this member has come to; `name` says what it is."""
        del name
        return Part()

    def together(self, name: str, action: Callable[[], T]) -> T:
        """Do something that all members do at this place, such as a report; `name` says what it is."""
        del name
        return action()

    def interrupt(self) -> None:
        """The group broke in the middle of a batch."""

    def has_done(self, name: str) -> bool:
        """Whether this part of the current batch is in the state already, since it was done before an interruption."""
        del name
        return False

    def note_done(self, name: str) -> None:
        """A part of the current batch has changed the state."""

    def complete(self) -> None:
        """A batch that ends a step is trained completely."""

    def regroup(self, *, is_open: bool) -> None:
        """Form a new group, since the present one broke."""

    def regroup_between(self) -> None:
        """`regroup` between two batches; Rewound if the last of them is read again."""

    def meet(self) -> None:
        """Let members join or leave, at a step boundary that all have agreed on."""

    def leave(self) -> bool:
        """Whether this worker leaves the others to go on without it when it is told to stop."""
        return False

    def catch_up(self) -> None:
        """The loop has reached the place where a worker that joined later falls in with the others."""

    def finish(self) -> None:
        """The training is complete."""

    def close(self) -> None:
        """End the connection with the others."""
