"""The states of experiments and trials, and the allowed transitions between them. Pure."""

from __future__ import annotations

from trek.client.models import State

EXPERIMENT_MOVES: dict[State, frozenset[State]] = {
    "queued": frozenset({"running", "paused", "completed", "errored", "killed"}),
    "running": frozenset({"paused", "completed", "errored", "killed"}),
    "paused": frozenset({"queued", "running", "completed", "errored", "killed"}),
    "completed": frozenset({"queued"}),  # continued to a greater length
    "errored": frozenset({"queued"}),
    "killed": frozenset({"queued"}),
}
TRIAL_MOVES: dict[State, frozenset[State]] = {
    "queued": frozenset({"running", "paused", "completed", "errored", "killed"}),
    "running": frozenset({"queued", "paused", "completed", "errored", "killed"}),
    "paused": frozenset({"queued", "completed", "errored", "killed"}),
    "completed": frozenset({"queued"}),
    "errored": frozenset({"queued"}),
    "killed": frozenset({"queued"}),
}


def check_move(kind: str, old: State, new: State) -> None:
    """Assert our own invariant: a state changes only as the table allows."""
    moves = EXPERIMENT_MOVES if kind == "experiment" else TRIAL_MOVES
    assert new == old or new in moves[old], f"{kind} cannot go from {old} to {new}"
