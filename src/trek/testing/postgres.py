"""A real PostgreSQL for tests: a separate server in a temporary folder, removed at the end of the block."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def can_run_postgres() -> bool:
    """Whether the programs are here, and somebody to run them: the server refuses to run as root."""
    has_programs = all(shutil.which(name) for name in ("initdb", "pg_ctl", "createdb"))
    return has_programs and _account() != "root"


@contextmanager
def postgres() -> Iterator[str]:
    """Start a server; gives the URL of an empty database in it."""
    folder = Path(tempfile.mkdtemp(prefix="trek-postgres-"))
    account = _account()
    if os.getuid() == 0:
        shutil.chown(folder, account)
    data, port = folder / "data", _free_port()

    def run(*command: str) -> None:
        user = account if os.getuid() == 0 else None
        subprocess.run(
            command, check=True, user=user, cwd=folder, capture_output=True, env={**os.environ, "LC_ALL": "C"}
        )

    try:
        run("initdb", "-D", str(data), "-A", "trust", "-U", "trek", "-N", "-E", "UTF8")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "trek", "trek")
        yield f"postgresql://trek@127.0.0.1:{port}/trek"
    finally:
        if (data / "postmaster.pid").exists():
            run("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def _account() -> str:
    """Who runs the server: ourselves, or the account the package made for it where we are root."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name
    return next((entry.pw_name for entry in pwd.getpwall() if entry.pw_name == "postgres"), "root")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
