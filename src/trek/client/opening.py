"""Which control plane a command speaks to: the master that was named, else this machine's own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trek.client.client import Address, Client
from trek.client.embedded import open_embedded
from trek.errors import InputError


def open_client(master: str | None = None, *, environ: Mapping[str, str] = os.environ) -> Client:
    """A client of `master`, or of TREK_MASTER, or of the embedded control plane."""
    url = master or environ.get("TREK_MASTER")
    if not url:
        return open_embedded()
    return Client(Address(master_url(url), environ.get("TREK_TOKEN", "")))


def master_url(text: str) -> str:
    """`host`, `host:port` or a URL as a URL."""
    url = text if "://" in text else f"http://{text}"
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https") or not rest.strip("/"):
        raise InputError(f"the master {text!r} is no address. Use one like http://host:8080.")
    return url.rstrip("/")
