"""The models of the REST API about the sessions of browsers. No behaviour, no torch."""

from __future__ import annotations

from pydantic import Field

from trek.client.models import Model, User
from trek.client.wire_values import Line, Secret


class SessionLink(Model):
    """A code that opens one session, once, until it expires."""

    code: str
    expires_s: float


class OpenSession(Model):
    """How a browser logs in: with the code of a link, or with a name and a password."""

    code: Secret = Field(default="", max_length=200)
    name: Line = Field(default="", max_length=100)
    password: Secret = Field(default="", max_length=1000)


class Session(Model):
    """Whom a browser is logged in as."""

    user: User
    csrf: str = ""
    """What requests that change something send as `X-Trek-CSRF`; empty for clients that send a token."""
    version: str
    """Of Trek."""
