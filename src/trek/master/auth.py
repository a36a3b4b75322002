"""Who may do what: identities from tokens, and the permission that every route requires.

Viewers read, except the code of experiments. Editors create, and change what they own. Admins may do anything. A
trial's process may read the assignment and the archive of its own run and report for it, as long as that run is the
trial's current one.
"""

from __future__ import annotations

import getpass
import hmac
from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from trek.client.models import Role
from trek.control.accounts import Identity
from trek.control.services import Services
from trek.errors import NotAllowed
from trek.master.web_sessions import WebSessions

_RANK: dict[Role, int] = {"viewer": 0, "editor": 1, "admin": 2}


class NotLoggedIn(NotAllowed):
    """The request has no valid token."""


class Auth:
    """Checks requests. `own_token` is the one in the home's address file: whoever can read that file owns the home."""

    def __init__(self, services: Services, *, own_token: str, sessions: WebSessions) -> None:
        self._services = services
        self._sessions = sessions
        self._own_token = own_token.encode()
        self._owner = Identity(_own_name(), "admin", is_home_owner=True)

    def identify(self, request: Request) -> Identity:
        """Who sent the request, as the door found out."""
        identity: Identity = request.state.identity
        return identity

    async def is_current(self, request: Request) -> bool:
        """Whether the sender of a request that is still being answered has the same rights as when it came."""
        token = request.state.token
        try:
            now = self.recognise(token) or await run_in_threadpool(self.find, token)
        except NotLoggedIn:
            return False
        return now == self.identify(request)

    def recognise(self, token: str) -> Identity | None:
        """Whom a token belongs to, if that is known without a query."""
        if hmac.compare_digest(token.encode(), self._own_token) or self._sessions.is_owner(token):
            return self._owner
        return self._services.accounts.recognise(token)

    def find(self, token: str) -> Identity:
        """Whom a token belongs to; NotLoggedIn if it is not valid."""
        identity = self.recognise(token) or (self._services.accounts.identify(token) if token else None)
        if identity is None:
            raise NotLoggedIn("the token is missing, invalid or expired. Use `trek user login`, or set TREK_TOKEN.")
        if identity.trial_id is not None:
            self._services.trials.check_current(identity.trial_id, run=identity.run)
        return identity

    def at_least(self, role: Role) -> Callable[[Request], Awaitable[Identity]]:
        """A dependency: a user with this role or a higher one. It needs no query, and so no thread."""

        async def check(request: Request) -> Identity:
            return self._require(request, role)

        return check

    def owner_of_experiment(self, request: Request, experiment_id: int) -> Identity:
        """A dependency: the experiment's owner, or an admin."""
        identity = self._require(request, "editor")
        owner = self._services.experiments.owner(experiment_id)
        check_owner(identity, owner, what=f"experiment {experiment_id}")
        return identity

    def owner_of_trial(self, request: Request, trial_id: int) -> Identity:
        """A dependency: the owner of the trial's experiment, or an admin."""
        self._require(request, "editor")
        return self.owner_of_experiment(request, self._services.trials.get(trial_id).experiment_id)

    def owner_of_checkpoint(self, request: Request, uuid: str) -> Identity:
        """A dependency: the owner of the checkpoint's experiment, or an admin."""
        self._require(request, "editor")
        return self.owner_of_experiment(request, self._services.checkpoints.get(uuid).experiment_id)

    async def trial_itself(self, request: Request, trial_id: int) -> Identity:
        """A dependency: a process of this trial, or an admin."""
        identity = self.identify(request)
        if identity.trial_id != trial_id and identity.role != "admin":
            raise NotAllowed(f"only the processes of trial {trial_id} may do this.")
        return identity

    def reader_of_archive(self, role: Role) -> Callable[[Request, str], Identity]:
        """A dependency: a user with this role or a higher one, or a process of a trial that has this archive."""

        def check(request: Request, sha256: str) -> Identity:
            identity = self.identify(request)
            if identity.trial_id is None:
                return self._require(request, role)
            if self._services.trials.archive(identity.trial_id) != sha256:
                raise NotAllowed(f"{identity.name} may only read the archive of its own experiment.")
            return identity

        return check

    def _require(self, request: Request, role: Role) -> Identity:
        identity = self.identify(request)
        if identity.role is None or _RANK[identity.role] < _RANK[role]:
            raise NotAllowed(f"this requires the role {role!r}; {identity.name} has {identity.role or 'none'!r}.")
        return identity


def check_owner(identity: Identity, owner: str, *, what: str) -> None:
    """NotAllowed unless `identity` is the owner or an admin."""
    if identity.role != "admin" and identity.name != owner:
        raise NotAllowed(f"{what} belongs to {owner or 'nobody'}. Ask the owner or an admin.")


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "owner"
