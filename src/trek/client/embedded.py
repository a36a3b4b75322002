"""The control plane of a home on this machine: found if it is running, started if it is not.

It is a separate process in a session of its own, so that it outlives the command that started it and receives none of
the terminal's signals. It ends by itself after it has been idle for a while.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import httpx
from filelock import FileLock

from trek.client.client import Address, Client
from trek.errors import InputError, MasterUnreachable, StorageError, TrekError
from trek.system.home import claim_home

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 30.0
"""How long one that listens may take to answer: a busy machine is no reason to start another. Who is gone refuses."""


def running_address(home: Path) -> Address | None:
    """Where the control plane of `home` listens; None if it is not running."""
    address = read_address(home / "control.json")
    return address if address is not None and _answers(address) else None


def ask_background_to_end(home: Path) -> bool:
    """Ask the control plane that commands started in the background to shut down; False if there is none.

    Its trials save, and are resumed by the next one. A master that a user started is left alone.
    """
    try:
        is_background = json.loads((home / "control.json").read_text())["is_background"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False
    address = running_address(home) if is_background else None
    if address is None:
        return False
    with Client(address) as client:
        client.stop_cluster()
    return True


def read_address(path: Path) -> Address | None:
    """The address in the file, whether or not anything still listens there."""
    try:
        content = json.loads(path.read_text())
        return Address(url=content["url"], token=content["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ensure_running(home: Path, *, engine: str | None = None) -> Address:
    """Find the control plane of `home`, or start it with `engine`; of several callers only one starts it."""
    address = running_address(home)
    if address is not None:
        return address
    try:
        claim_home(home)
        with FileLock(home / "control.start.lock", mode=0o600):
            return running_address(home) or _start(home, engine=engine)
    except OSError as error:
        raise StorageError(f"cannot write to the folder {str(home)!r}: {error.strerror}. Set TREK_HOME.") from error


def _start(home: Path, *, engine: str | None) -> Address:
    log = home / "control.log"
    began = log.stat().st_size if log.exists() else 0
    command = [sys.executable, "-m", "trek.master.daemon", "--home", str(home)]
    pid = _spawn([*command, *(["--engine", engine] if engine else [])], log=log)
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        address = running_address(home)
        if address is not None:
            _end_superfluous(pid, home)
            return address
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended == pid:
            raise _start_error(log, began=began, exit_code=os.waitstatus_to_exitcode(status))
        time.sleep(0.02)
    raise _start_error(log, began=began, exit_code=None)


def _end_superfluous(pid: int, home: Path) -> None:
    """End what was started if another one answers: it would wait, and take over when that one is stopped."""
    try:
        is_own = json.loads((home / "control.json").read_text())["pid"] == pid
    except (OSError, ValueError, KeyError, TypeError):
        return
    if not is_own:
        os.kill(pid, signal.SIGKILL)  # it holds nothing: it waits for the lock of the other one
        os.waitpid(pid, 0)


def _start_error(log: Path, *, began: int, exit_code: int | None) -> TrekError:
    """Why the control plane did not start: its last line, with its own exit code if that says bad input."""
    output = log.read_bytes()[began:].decode(errors="replace").strip().splitlines()
    last = output[-1].removeprefix("trek: error: ") if output else "no output"
    if exit_code == InputError.exit_code:
        return InputError(last)
    return MasterUnreachable(f"the control plane did not start: {last} (see {log}).")


def _spawn(command: list[str], *, log: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        command[0],
        command,
        {**os.environ, "PYTHONUNBUFFERED": "1"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _answers(address: Address) -> bool:
    try:
        reply = httpx.get(
            f"{address.url}/api/v1/cluster",
            headers={"authorization": f"Bearer {address.token}"},
            timeout=ANSWER_TIMEOUT_S,
            trust_env=False,
        )
    except httpx.HTTPError:
        return False
    return reply.status_code == 200
