"""The ledger of pushes: what was applied is known by source and number, and by its contents if they have a digest."""

from __future__ import annotations

import pytest

from trek.errors import InputError
from trek.ps.push_ledger import PushId, PushLedger


def test_a_used_number_is_repeated_with_the_same_digest_or_without_one() -> None:
    ledger = PushLedger()
    ledger.note("x", PushId(2, b"one"))
    assert not ledger.has("y", PushId(1, b"one"))
    assert not ledger.has("x", PushId(3, b"one"))
    assert ledger.has("x", PushId(2, b"one"))
    assert ledger.has("x", PushId(2))
    assert ledger.has("x", PushId(1, b"other"))
    with pytest.raises(InputError, match="push 2 of source 'x' was applied with other contents"):
        ledger.has("x", PushId(2, b"other"))


def test_the_ledgers_of_several_servers_become_one_with_the_later_pushes() -> None:
    one, other, merged = PushLedger(), PushLedger(), PushLedger()
    one.note("x", PushId(3, b"three"))
    one.note("y", PushId(1))
    other.note("x", PushId(2, b"two"))
    for ledger in (one, other):
        merged.merge(ledger.sequences(), ledger.digests())
    assert merged.sequences() == {"x": 3, "y": 1}
    with pytest.raises(InputError):
        merged.has("x", PushId(3, b"two"))
    merged.forget("x")
    assert merged.sequences() == {"y": 1}
