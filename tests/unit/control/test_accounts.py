"""Users and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from argon2 import PasswordHasher, Type, extract_parameters
from argon2.profiles import get_default_parameters
from sqlalchemy import select

from trek.client.models import ChangeUser, CreateToken, CreateUser, Login
from trek.control.accounts import Accounts
from trek.control.identity_cache import IdentityCache
from trek.control.store import Store
from trek.control.tables import UserRow
from trek.errors import InputError, NotAllowed, NotFound
from trek.testing.clock import FakeClock
from trek.testing.control_parts import QUICK_HASHER, open_store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    yield made
    made.close()


@pytest.fixture
def accounts(store: Store, clock: FakeClock) -> Accounts:
    made = Accounts(store, clock=clock, hasher=QUICK_HASHER)
    made.create_user(CreateUser(name="ann", password="correct horse"))
    return made


def login(accounts: Accounts, password: str, name: str = "ann") -> str:
    return accounts.login(Login(name=name, password=password)).token


def test_the_right_password_gives_a_token_that_says_who_it_is(accounts: Accounts) -> None:
    identity = accounts.identify(login(accounts, "correct horse"))
    assert identity is not None
    assert (identity.name, identity.role) == ("ann", "editor")


def test_passwords_are_hashed_with_the_work_that_is_recommended(store: Store, clock: FakeClock) -> None:
    """The other tests hash with less."""
    accounts = Accounts(store, clock=clock)
    accounts.create_user(CreateUser(name="bob", password="correct horse"))
    with store.reading() as session:
        hashed = session.scalars(select(UserRow.password_hash)).one()
    parameters = extract_parameters(hashed)
    assert (parameters.type, parameters) == (Type.ID, get_default_parameters())
    assert login(accounts, "correct horse", "bob")
    with pytest.raises(NotAllowed):
        login(accounts, "wrong", "bob")


@pytest.mark.parametrize("name", ["ann", "nobody"])
def test_a_wrong_name_or_password_is_told_the_same(accounts: Accounts, name: str) -> None:
    with pytest.raises(NotAllowed, match="invalid user name or password"):
        login(accounts, "wrong", name)


def test_a_token_ends_when_it_expires(accounts: Accounts, clock: FakeClock) -> None:
    token = accounts.create_token("ann", CreateToken(days=1)).token
    clock.advance(86_399)
    assert accounts.identify(token) is not None
    clock.advance(2)
    assert accounts.identify(token) is None


def test_a_token_ends_when_it_is_revoked(accounts: Accounts) -> None:
    made = accounts.create_token("ann", CreateToken())
    assert [token.token for token in accounts.tokens("ann")] == [""]
    accounts.revoke_token("ann", made.id)
    assert accounts.identify(made.token) is None
    with pytest.raises(NotFound):
        accounts.revoke_token("ann", made.id)


@pytest.mark.parametrize("change", [ChangeUser(password="battery staple"), ChangeUser(is_active=False)])
def test_a_new_password_or_a_closed_account_ends_all_tokens(accounts: Accounts, change: ChangeUser) -> None:
    token = login(accounts, "correct horse")
    accounts.change_user("ann", change)
    assert accounts.identify(token) is None
    with pytest.raises(NotAllowed):
        login(accounts, "correct horse")


@pytest.mark.parametrize("change", [ChangeUser(password="battery staple"), ChangeUser(is_active=False)])
def test_a_password_that_was_replaced_while_it_was_verified_gives_no_token(
    store: Store, clock: FakeClock, change: ChangeUser
) -> None:
    class SlowHasher(PasswordHasher):
        """Verifies while an admin changes the account."""

        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002
            is_right = QUICK_HASHER.verify(hash, password)
            Accounts(store, clock=clock, hasher=QUICK_HASHER).change_user("ann", change)
            return is_right

    Accounts(store, clock=clock, hasher=QUICK_HASHER).create_user(CreateUser(name="ann", password="correct horse"))
    with pytest.raises(NotAllowed, match="invalid user name or password"):
        login(Accounts(store, clock=clock, hasher=SlowHasher()), "correct horse")


@pytest.mark.parametrize("change", [ChangeUser(password="battery staple"), ChangeUser(is_active=False)])
def test_a_token_that_has_ended_makes_no_other_one(accounts: Accounts, change: ChangeUser) -> None:
    """A request that was let in just before a new password was answered after it, with a token that stayed valid."""
    token = login(accounts, "correct horse")
    assert accounts.create_token("ann", CreateToken(), by=token).token
    accounts.change_user("ann", change)
    accounts.change_user("ann", ChangeUser(is_active=True))
    with pytest.raises(NotAllowed, match="has ended"):
        accounts.create_token("ann", CreateToken(), by=token)
    assert accounts.tokens("ann") == []


@pytest.mark.parametrize("change", [ChangeUser(password="battery staple"), ChangeUser(role="viewer")])
def test_a_recognised_token_follows_every_change(accounts: Accounts, change: ChangeUser) -> None:
    token = login(accounts, "correct horse")
    assert accounts.identify(token) == accounts.recognise(token)
    accounts.change_user("ann", change)
    assert accounts.recognise(token) is None


def test_a_recognised_token_expires(accounts: Accounts, clock: FakeClock) -> None:
    token = accounts.create_token("ann", CreateToken(days=1 / 86_400)).token
    assert accounts.identify(token) is not None
    clock.advance(1.5)
    assert accounts.recognise(token) is None


def test_what_a_query_found_before_a_change_is_not_kept(clock: FakeClock) -> None:
    cache: IdentityCache[str] = IdentityCache(clock=clock)
    before = cache.generation
    cache.clear()
    cache.put("digest", "ann", expires_s=clock.now_s() + 60, generation=before)
    assert cache.get("digest") is None


def test_neither_passwords_nor_tokens_are_kept(accounts: Accounts, store: Store, tmp_path: Path) -> None:
    token = login(accounts, "correct horse")
    store.close()
    content = b"".join(path.read_bytes() for path in tmp_path.glob("control.db*"))
    assert b"correct horse" not in content
    assert token.encode() not in content


def test_a_trials_token_outlives_the_control_plane_and_cannot_be_forged(accounts: Accounts, store: Store) -> None:
    token = accounts.trial_token(7, 2)
    again = Accounts(store, clock=FakeClock()).identify(token)
    assert again is not None
    assert (again.trial_id, again.run, again.role) == (7, 2, None)
    for forged in (
        token.replace("trial.7", "trial.8"),
        token[:-1],
        "trial.7.2.",
        "trial.x.y.z",
        "trial...",
        "trial.٣.1.a",
    ):
        assert accounts.identify(forged) is None


def test_a_name_is_taken_once(accounts: Accounts) -> None:
    with pytest.raises(InputError, match="already exists"):
        accounts.create_user(CreateUser(name="ann", password="battery staple"))
