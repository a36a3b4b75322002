"""Accounts: users, passwords, tokens, and whom a token belongs to. What each may do is decided by the master.

Passwords are stored as Argon2 hashes, tokens as SHA-256 of 256 random bits. The processes of a trial have a signed
token that names one run: it needs no row and survives a restart of the control plane. Whether that run is still the
trial's current one is checked for every request; see `trek.master.auth`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from trek.client import models
from trek.client.models import Role
from trek.control.identity_cache import IdentityCache
from trek.control.store import Store
from trek.control.tables import SecretRow, TokenRow, UserRow
from trek.errors import InputError, NotAllowed, NotFound
from trek.system.clock import Clock

LOGIN_DAYS = 30.0


@dataclass(frozen=True)
class Identity:
    """Who sent a request: a user, or a process of one run of a trial."""

    name: str
    role: Role | None
    trial_id: int | None = None
    run: int | None = None
    is_home_owner: bool = False
    """Whether it is whoever can read the files of the home, rather than a user."""


class Accounts:
    """Users and tokens of one store. Passwords are hashed by `hasher`, or with the work that argon2-cffi recommends."""

    def __init__(self, store: Store, *, clock: Clock, hasher: PasswordHasher | None = None) -> None:
        self._store = store
        self._clock = clock
        self._hasher = hasher or PasswordHasher()
        self._recognised: IdentityCache[Identity] = IdentityCache(clock=clock)
        self._signing_key = self._load_signing_key()

    @cached_property
    def _dummy_hash(self) -> str:
        """Verified for unknown names, so that the response time does not reveal which names exist."""
        return self._hasher.hash(secrets.token_hex())

    @property
    def database_id(self) -> str:
        """Tells this database from others; not secret."""
        return self._sign("database id")[:8]

    # users

    @property
    def has_users(self) -> bool:
        """Whether anybody can log in."""
        with self._store.reading() as session:
            return bool(session.scalar(select(func.count()).select_from(UserRow).where(UserRow.is_active)))

    def create_user(self, request: models.CreateUser) -> models.User:
        """Add a user."""
        hashed = self._hasher.hash(request.password)
        with self._store.writing() as session:
            if session.scalar(select(UserRow).where(UserRow.name == request.name)) is not None:
                raise InputError(f"the user {request.name!r} already exists. Choose another name.")
            row = UserRow(name=request.name, password_hash=hashed, role=request.role, created_s=self._clock.now_s())
            session.add(row)
        return _user(row)

    def users(self) -> list[models.User]:
        """All users, by name."""
        with self._store.reading() as session:
            return [_user(row) for row in session.scalars(select(UserRow).order_by(UserRow.name))]

    def change_user(self, name: str, change: models.ChangeUser) -> models.User:
        """Set a password, a role, or whether the user may log in. A new password revokes all tokens of the user."""
        hashed = self._hasher.hash(change.password) if change.password is not None else None
        with self._store.writing() as session:
            row = self._find(session, name)
            if hashed is not None:
                row.password_hash = hashed
            if change.role is not None:
                row.role = change.role
            if change.is_active is not None:
                row.is_active = change.is_active
            if change.password is not None or change.is_active is False:
                session.execute(delete(TokenRow).where(TokenRow.user_id == row.id))
        self._recognised.clear()
        return _user(row)

    # tokens

    def login(self, request: models.Login, token: models.CreateToken | None = None) -> models.Token:
        """A token for a name and a password. Whoever calls this limits the attempts."""
        hashed = self.check_password(request.name, request.password)
        wanted = token or models.CreateToken(description="login", days=LOGIN_DAYS)
        return self._add_token(request.name, wanted, password_hash=hashed)

    def check_password(self, name: str, password: str) -> str:
        """The stored hash of an active user's password, if `password` is the user's; NotAllowed otherwise."""
        with self._store.reading() as session:
            row = session.scalar(select(UserRow).where(UserRow.name == name))
        hashed = row.password_hash if row is not None and row.is_active else self._dummy_hash
        if not self._verify(hashed, password) or row is None or not row.is_active:
            raise NotAllowed("invalid user name or password.")
        return hashed

    def create_token(self, name: str, request: models.CreateToken, *, by: str | None = None) -> models.Token:
        """A new token of a user. Its text is not stored, so this is the only time it can be shown.

        `by` is the token that asks for it, which must still be valid when the new one is added.
        """
        return self._add_token(name, request, by=by)

    def _add_token(
        self, name: str, request: models.CreateToken, *, password_hash: str | None = None, by: str | None = None
    ) -> models.Token:
        """Add a token; NotAllowed if the user was deactivated, or the login ended since it was verified."""
        text, now = secrets.token_urlsafe(32), self._clock.now_s()
        with self._store.writing() as session:
            user = self._find(session, name)
            if not user.is_active or password_hash not in (None, user.password_hash):
                raise NotAllowed("invalid user name or password.")
            if by is not None and session.scalar(select(TokenRow.id).where(TokenRow.hash == _digest(by))) is None:
                raise NotAllowed(f"the login of {name!r} has ended. Log in again with `trek user login`.")
            row = TokenRow(
                user_id=user.id,
                hash=_digest(text),
                description=request.description,
                created_s=now,
                expires_s=now + request.days * 86_400,
            )
            session.add(row)
            session.execute(delete(TokenRow).where(TokenRow.expires_s < now))
        return _token(row, text)

    def tokens(self, name: str) -> list[models.Token]:
        """A user's tokens, without their text."""
        with self._store.reading() as session:
            query = select(TokenRow).join(UserRow, TokenRow.user_id == UserRow.id).where(UserRow.name == name)
            return [_token(row) for row in session.scalars(query.order_by(TokenRow.id))]

    def revoke_token(self, name: str, token_id: int) -> None:
        """Revoke one of a user's tokens."""
        with self._store.writing() as session:
            row = session.get(TokenRow, token_id)
            if row is None or row.user_id != self._find(session, name).id:
                raise NotFound(f"token {token_id} of {name} does not exist. See `trek token list`.")
            session.delete(row)
        self._recognised.clear()

    def revoke(self, token: str) -> None:
        """Revoke a token by its text; one that is not known is left."""
        with self._store.writing() as session:
            session.execute(delete(TokenRow).where(TokenRow.hash == _digest(token)))
        self._recognised.clear()

    def identify(self, token: str) -> Identity | None:
        """Whom the token belongs to; None if it is invalid, expired or revoked."""
        if token.startswith("trial."):
            return self._identify_trial(token)
        digest, generation = _digest(token), self._recognised.generation
        with self._store.reading() as session:
            found = session.execute(
                select(UserRow, TokenRow.expires_s)
                .join(TokenRow, TokenRow.user_id == UserRow.id)
                .where(TokenRow.hash == digest)
            ).one_or_none()
        if found is None or not found[0].is_active or found[1] < self._clock.now_s():
            return None
        identity = Identity(found[0].name, cast(Role, found[0].role))
        self._recognised.put(digest, identity, expires_s=found[1], generation=generation)
        return identity

    def recognise(self, token: str) -> Identity | None:
        """Whom a user's token belongs to, if `identify` found it moments ago; needs no query."""
        return self._recognised.get(_digest(token))

    def trial_token(self, trial_id: int, run: int) -> str:
        """The token of the processes of one run of a trial."""
        return f"trial.{trial_id}.{run}.{self._sign(f'{trial_id}.{run}')}"

    def _identify_trial(self, token: str) -> Identity | None:
        parts = token.split(".")
        if len(parts) != 4 or not (parts[1].isascii() and parts[1].isdigit() and parts[2].isdigit()):
            return None
        if not hmac.compare_digest(self._sign(f"{parts[1]}.{parts[2]}").encode(), parts[3].encode()):
            return None
        return Identity(f"trial {parts[1]}", None, trial_id=int(parts[1]), run=int(parts[2]))

    def _sign(self, text: str) -> str:
        return hmac.new(self._signing_key, text.encode(), hashlib.sha256).hexdigest()

    def _load_signing_key(self) -> bytes:
        with self._store.writing() as session:
            row = session.get(SecretRow, "trial_tokens")
            if row is None:
                row = SecretRow(name="trial_tokens", value=secrets.token_hex(32))
                session.add(row)
            return bytes.fromhex(row.value)

    def _verify(self, hashed: str, password: str) -> bool:
        try:
            return self._hasher.verify(hashed, password)
        except (Argon2Error, InvalidHashError):
            return False

    def _find(self, session: Session, name: str) -> UserRow:
        row = session.scalar(select(UserRow).where(UserRow.name == name))
        if row is None:
            raise NotFound(f"the user {name!r} does not exist. See `trek user list`.")
        return row


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _user(row: UserRow) -> models.User:
    return models.User.model_validate(
        {"name": row.name, "role": row.role, "is_active": row.is_active, "created_s": row.created_s}
    )


def _token(row: TokenRow, text: str = "") -> models.Token:
    return models.Token(
        id=row.id, description=row.description, created_s=row.created_s, expires_s=row.expires_s, token=text
    )
