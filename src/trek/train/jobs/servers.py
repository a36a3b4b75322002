"""The parameter servers of a job: members of its gang beside the workers."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from trek.engines.base import Exit, Gang, Role
from trek.errors import ConfigError, InputError
from trek.ps.addresses import SERVER_FOLDER

SERVER = "server"
_MAX_SERVERS = 4096
_KILLED = {-9, -15, 137, 143}


@dataclass(frozen=True)
class JobServers:
    """What a gang needs to have servers, until it is closed."""

    roles: Mapping[str, Role]
    folder: Path | None

    def close(self) -> None:
        """Remove the journals."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def open_servers(num_servers: int) -> JobServers:
    """The role of the servers, for a gang; no role without servers."""
    if not num_servers:
        return JobServers({}, None)
    folder = Path(mkdtemp(prefix="trek-servers-"))
    return JobServers(server_roles(num_servers, folder=folder), folder)


def server_roles(num_servers: int, *, folder: Path) -> Mapping[str, Role]:
    """The role of the servers, whose journals are in `folder`; no role without servers."""
    command = [sys.executable, "-m", "trek.ps.server_process"]
    return {SERVER: Role(command, num_servers, env={SERVER_FOLDER: str(folder)})} if num_servers else {}


def restart_server(gang: Gang, failed: Exit) -> bool:
    """Start a server again that was killed; whether that was it. One that failed by itself would fail again."""
    if failed.role != SERVER or failed.code not in _KILLED:
        return False
    try:
        gang.restart(failed.rank, role=SERVER)
    except InputError:  # a gang that was found again cannot start members, or it has just ended
        return False
    return True


def check_servers(servers: Any, *, strategy: str | None) -> int:
    """`servers`, if it is a number of parameter servers that goes with `strategy`; otherwise raise `ConfigError`."""
    if isinstance(servers, bool) or not isinstance(servers, int) or not 0 <= servers <= _MAX_SERVERS:
        raise ConfigError(f"servers must be a whole number from 0 to {_MAX_SERVERS}, got {servers!r}.")
    if servers and strategy != "ps":
        raise ConfigError(f"servers={servers} is for strategy 'ps', got strategy {strategy!r}. Set strategy='ps'.")
    return servers
