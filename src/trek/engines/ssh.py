"""Reaching other machines: the command line that starts an agent there, and the environment it takes along.

The user's command, paths and variables go through the agent's stdin; the command line holds only what is ours, so
nothing needs quoting and no secret shows in a list of processes.
"""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import Mapping

from trek.engines.agent import SHARE, THREADS

_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=10")
"""Never ask for a password; give up on a machine that does not answer, at the start and later."""

_BOUND_NAMES = {
    "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "HOME", "HOSTNAME", "LOGNAME", "MAIL", "OLDPWD", "PWD", "SHELL", "SHLVL",
    "TERM", "TMPDIR", "TMUX", "TTY", "USER", "WAYLAND_DISPLAY", "XAUTHORITY", "_",
}  # fmt: skip
_BOUND_PREFIXES = ("SSH_", "XDG_", "LC_", "TREK_SSH")


def ssh_command(host: str, *, environ: Mapping[str, str]) -> list[str]:
    """The command line that runs an agent on `host`. TREK_SSH may name another ssh, with options of its own."""
    ssh = shlex.split(environ.get("TREK_SSH") or "ssh")
    # The package has imported the agent before it is run as a program, which does no harm.
    return [
        *ssh,
        *_OPTIONS,
        host,
        f"{shlex.quote(sys.executable)} -W ignore::RuntimeWarning:runpy -m trek.engines.agent",
    ]


def portable_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what belongs to this machine, this user's home and this session."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _BOUND_NAMES and not name.startswith(_BOUND_PREFIXES)
    }


def without_share(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without a number of threads that Trek decided for a process of this machine."""
    is_treks = environ.get(THREADS) == environ.get(SHARE)
    return {name: value for name, value in environ.items() if not (is_treks and name in (THREADS, SHARE))}


def reachable_address(other: str) -> str:
    """This machine's address as `other` would see it; asks the routing table and sends nothing."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((other.rpartition("@")[2], 9))
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
