"""The numbers of a client's pushes: one is used up once it was tried, and belongs to what was pushed under it."""

from __future__ import annotations

from trek.ps.push_numbers import PushNumbers


def test_numbers_go_on_after_the_last_one_that_servers_know() -> None:
    numbers = PushNumbers(lambda: 7)
    taken = []
    for digest in (b"one", b"two", b"two"):
        taken.append(numbers.take(digest))
        numbers.settle(is_accepted=True)
    assert taken == [8, 9, 10]


def test_a_push_that_failed_keeps_its_number_and_another_one_gets_the_next() -> None:
    numbers = PushNumbers(lambda: 0)
    assert [numbers.take(digest) for digest in (b"one", b"one", b"two", b"one")] == [1, 1, 2, 3]


def test_a_batch_that_was_rejected_is_pushed_anew_under_its_number() -> None:
    numbers = PushNumbers(lambda: 0)
    assert numbers.take(b"old") == 1
    numbers.settle(is_accepted=False)
    assert numbers.take(b"new") == 1
    numbers.settle(is_accepted=True)
    assert numbers.take(b"next") == 2
