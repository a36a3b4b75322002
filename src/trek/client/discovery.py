"""Which control plane to use: the named master, else the one of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from trek.client.client import Address
from trek.client.embedded import ensure_running
from trek.client.logins import saved_token
from trek.errors import InputError
from trek.world import trek_home

Relocate = Callable[[], Address | None]


def find_control_plane(
    master: str | None = None, *, environ: Mapping[str, str] = os.environ
) -> tuple[Address, Relocate | None]:
    """The address of `master`, of TREK_MASTER, or of the embedded control plane, and how to find it again."""
    url = master or environ.get("TREK_MASTER")
    if url:
        url = master_url(url)
        return Address(url, environ.get("TREK_TOKEN") or saved_token(url, home=trek_home(environ))), None
    home = trek_home(environ)
    return ensure_running(home), lambda: ensure_running(home)


def master_url(text: str) -> str:
    """`host`, `host:port` or a URL as a URL."""
    url = text if "://" in text else f"http://{text}"
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https") or not rest.partition("/")[0]:
        raise InputError(f"the master {text!r} is not a valid address. Use one such as http://host:8080.")
    return url.rstrip("/")
