"""The log of what was done since the last step: entries are not repeated, whoever made them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trek.train.loop.done_log import DoneLog


def test_the_same_part_of_a_batch_has_a_key_for_each_time_it_comes() -> None:
    log = DoneLog()
    assert [log.next_key("step", 3), log.next_key("step", 3), log.next_key("step", 4)] == [
        ("step", 3, 0),
        ("step", 3, 1),
        ("step", 4, 0),
    ]


def test_after_a_rewind_the_code_comes_to_the_same_keys_and_finds_them_done() -> None:
    log = DoneLog()
    first = log.next_key("step", 5)
    log.add(first, "result")
    log.rewind(4)
    again = log.next_key("step", 5)
    assert again == first
    assert log[again] == "result"


def test_a_rewind_keeps_the_count_of_parts_that_are_not_repeated() -> None:
    log = DoneLog()
    log.next_key("report", 4)
    log.rewind(4)
    assert log.next_key("report", 4) == ("report", 4, 1)


@given(
    st.lists(st.tuples(st.sampled_from(["report", "save", "step"]), st.integers(0, 5)), max_size=30), st.integers(0, 5)
)
def test_forgetting_drops_exactly_what_all_workers_are_past(parts: list[tuple[str, int]], batches: int) -> None:
    log = DoneLog()
    for number, (name, at) in enumerate(parts):
        log.add(log.next_key(name, at), number)
    kept = [entry for entry in log.state_dict() if entry[0][1] > batches]
    log.forget(batches)
    assert log.state_dict() == kept


@given(st.lists(st.tuples(st.sampled_from(["report", "save", "step"]), st.integers(0, 5)), max_size=30))
def test_another_workers_log_brings_its_results_and_keeps_how_far_this_code_is(parts: list[tuple[str, int]]) -> None:
    ahead, behind = DoneLog(), DoneLog()
    for number, (name, at) in enumerate(parts):
        ahead.add(ahead.next_key(name, at), number)
    behind.load_state_dict(ahead.state_dict())
    assert len(behind) == len(ahead)
    for number, (name, at) in enumerate(parts):
        key = behind.next_key(name, at)
        assert behind[key] == number


def test_a_complete_step_clears_everything() -> None:
    log = DoneLog()
    log.add(log.next_key("save", 1), None)
    log.clear()
    assert len(log) == 0
    assert log.next_key("save", 1) == ("save", 1, 0)
