"""The state machine."""

from __future__ import annotations

import pytest

from trek.client.models import ENDED
from trek.control.states import EXPERIMENT_MOVES, TRIAL_MOVES, check_move


@pytest.mark.parametrize("moves", [EXPERIMENT_MOVES, TRIAL_MOVES])
def test_what_has_ended_only_starts_again_from_the_queue(moves: dict[str, frozenset[str]]) -> None:
    for state in ENDED:
        assert moves[state] == {"queued"}


@pytest.mark.parametrize("moves", [EXPERIMENT_MOVES, TRIAL_MOVES])
def test_every_state_can_be_killed_until_it_has_ended(moves: dict[str, frozenset[str]]) -> None:
    assert all("killed" in following for state, following in moves.items() if state not in ENDED)


def test_a_move_that_is_not_in_the_table_is_refused() -> None:
    check_move("trial", "running", "queued")
    with pytest.raises(AssertionError, match="completed to running"):
        check_move("trial", "completed", "running")
    with pytest.raises(AssertionError, match="experiment cannot go from running to queued"):
        check_move("experiment", "running", "queued")
