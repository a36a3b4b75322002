"""A real S3 server for tests: a separate process on loopback, ended with the block."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from trek.testing.shell import wait_until

ACCOUNT = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "something", "AWS_DEFAULT_REGION": "us-east-1"}
"""Variables for the processes that use the server, beside AWS_ENDPOINT_URL with what `s3` gives."""
MISSING = [name for name in ("moto", "flask", "s3fs") if importlib.util.find_spec(name) is None]
"""Packages that it needs and that are not here."""


@contextmanager
def s3(bucket: str) -> Iterator[str]:
    """Start a server with one empty bucket; gives its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(url))
        httpx.put(f"{url}/{bucket}", trust_env=False).raise_for_status()
        yield url
    finally:
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
