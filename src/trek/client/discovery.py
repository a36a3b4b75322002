"""Which control plane to use: the named master, else the one of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from trek.client.client import Address
from trek.client.embedded import ensure_running, read_address
from trek.client.logins import saved_token
from trek.errors import InputError
from trek.system.home import trek_home
from trek.world.addresses import is_loopback

Relocate = Callable[[], Address | None]


def find_control_plane(
    master: str | None = None, *, engine: str | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[Address, Relocate | None]:
    """The address of `master`, of TREK_MASTER, or of the embedded control plane, and how to find it again.

    An embedded control plane that has to be started runs trials on `engine`.
    """
    url = master or environ.get("TREK_MASTER")
    if url:
        url = master_url(url)
        home = trek_home(environ)
        token = environ.get("TREK_TOKEN") or saved_token(url, home=home) or _own_token(url, home=home)
        return Address(url, token), None
    home = trek_home(environ)
    return ensure_running(home, engine=engine), lambda: ensure_running(home, engine=engine)


def _own_token(url: str, *, home: Path) -> str:
    """The token of the control plane of `home` if `url` is its address; else empty."""
    own = read_address(home / "control.json")
    if own is None:
        return ""
    wanted, listening = urlsplit(url), urlsplit(own.url)
    hosts = (wanted.hostname or "", listening.hostname or "")
    is_same_host = hosts[0] == hosts[1] or all(is_loopback(host) for host in hosts)
    return own.token if is_same_host and wanted.port == listening.port else ""


def master_url(text: str) -> str:
    """`host`, `host:port` or a URL as a URL."""
    url = text if "://" in text else f"http://{text}"
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https") or not rest.partition("/")[0]:
        raise InputError(f"the master {text!r} is not a valid address. Use one such as http://host:8080.")
    return url.rstrip("/")
