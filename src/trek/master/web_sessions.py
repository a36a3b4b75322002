"""WebSessions: how a browser becomes somebody, by a link that works once or by a password, and its cookie.

The cookie holds a token. A user's is one of the user's own tokens, which survive a restart and can be revoked; the
owner of the home, who is not a user, gets one that is known to this process alone. What a request that comes with the
cookie must prove before it changes anything is decided here as well.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from trek.client.models import CreateToken, Login
from trek.client.session_models import SessionLink
from trek.control.accounts import LOGIN_DAYS, Accounts, Identity
from trek.errors import NotAllowed
from trek.system.clock import Clock

LINK_S = 600.0
CSRF_HEADER = "x-trek-csrf"
MAX_LINKS = 1000
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class _Link:
    token: str
    """Of who made it: a link ends with the token that asked for it."""
    expires_s: float


@dataclass(frozen=True)
class Credentials:
    """The token of a request, and whether a browser added it by itself."""

    token: str
    is_cookie: bool = False


class WebSessions:
    """Links that were made and not yet used, and the sessions of the home's owner. Safe to use from several threads."""

    def __init__(self, accounts: Accounts, *, clock: Clock) -> None:
        self._accounts = accounts
        self._clock = clock
        self._links: dict[str, _Link] = {}
        self._owner_tokens: dict[str, float] = {}
        self._lock = threading.Lock()
        # Browsers send cookies to every port of a host; each database has its own.
        self.cookie = f"trek-{accounts.database_id}"

    @property
    def has_links(self) -> bool:
        """Whether somebody may still follow a link."""
        now_s = self._clock.now_s()
        with self._lock:
            return any(link.expires_s > now_s for link in self._links.values())

    def make_link(self, token: str) -> SessionLink:
        """A code that logs a browser in as the owner of `token`, once, while that token is valid."""
        code, expires_s = secrets.token_urlsafe(24), self._clock.now_s() + LINK_S
        with self._lock:
            self._links = {key: one for key, one in self._links.items() if one.expires_s > self._clock.now_s()}
            if len(self._links) >= MAX_LINKS:
                self._links.pop(next(iter(self._links)))
            self._links[_digest(code)] = _Link(token, expires_s)
        return SessionLink(code=code, expires_s=expires_s)

    def follow_link(self, code: str, *, find: Callable[[str], Identity]) -> str:
        """A new token for the cookie; NotAllowed if the code was used or has expired.

        `find` says whose a token is, and raises NotAllowed if it is not valid any more.
        """
        with self._lock:
            link = self._links.pop(_digest(code), None)
        if link is None or link.expires_s < self._clock.now_s():
            raise NotAllowed("the link was used already or has expired. Run `trek web` for another one.")
        try:
            identity = find(link.token)
        except NotAllowed:
            raise NotAllowed("the link ended with the login that made it. Run `trek web` for another one.") from None
        return self._token_of(identity, by=link.token)

    def log_in(self, login: Login) -> str:
        """A token for the cookie of a user, whose attempts the caller limits."""
        return self._accounts.login(login, _web_token()).token

    def end(self, token: str) -> None:
        """Log out: the token is worthless from now on."""
        with self._lock:
            is_owner = self._owner_tokens.pop(_digest(token), None) is not None
        if not is_owner:
            self._accounts.revoke(token)

    def is_owner(self, token: str) -> bool:
        """Whether the token belongs to a session of the home's owner."""
        return self._owner_tokens.get(_digest(token), 0.0) > self._clock.now_s()

    def credentials(self, headers: Headers) -> Credentials:
        """What a request identifies itself with: a token in its header, else the cookie."""
        if "authorization" in headers:
            return Credentials(headers["authorization"].removeprefix("Bearer "))
        token = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        return Credentials(token, is_cookie=bool(token))

    def _token_of(self, identity: Identity, *, by: str) -> str:
        if not identity.is_home_owner:
            return self._accounts.create_token(identity.name, _web_token(), by=by).token
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._owner_tokens[_digest(token)] = self._clock.now_s() + LOGIN_DAYS * 86_400
        return token


def check_csrf(credentials: Credentials, *, method: str, headers: Headers) -> None:
    """NotAllowed if another site may have made the browser send this. Pure.

    Browsers add cookies by themselves, also to requests of pages on another port of the same host. The header holds
    what only the page itself can know, since other sites cannot read the answers of this one.
    """
    if method in _SAFE or not credentials.is_cookie:
        return
    check_same_origin(headers)
    sent = headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(sent.encode(), csrf_of(credentials.token).encode()):
        raise NotAllowed(f"the header {CSRF_HEADER} is missing or wrong. Reload the page.")


def check_same_origin(headers: Headers) -> None:
    """NotAllowed if the browser says that a page of another origin sent the request. Pure."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise NotAllowed("requests of other sites are refused.")


def csrf_of(token: str) -> str:
    """What the page of the session with this token sends along with every change. Pure."""
    return hmac.new(token.encode(), b"trek csrf", hashlib.sha256).hexdigest()


def _web_token() -> CreateToken:
    return CreateToken(description="web page", days=LOGIN_DAYS)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
