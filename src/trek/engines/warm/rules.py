"""Which members may be started warm, and which parent they belong to. Pure, except for `surroundings`."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import resource
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trek._version import __version__
from trek.engines.roles import WORLD_NAMES

IMPORT_TIME = (
    "ARROW_", "ATEN_", "FSSPEC_", "GLIBC_", "GOMP_", "KINETO_", "KMP_", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "NPY_",
    "NUMPY_", "OMP_", "OPENBLAS_", "PYDANTIC_", "PYTHON", "PYTORCH_", "TORCH", "TQDM_", "TRITON_",
)  # fmt: skip
"""Beginnings of the variables that Python, torch or their libraries read once, when they are loaded."""

THREADS = "OMP_NUM_THREADS"
"""Read when torch is loaded, too, and the one that differs between members: torch's count can be changed later."""

ROOM = "TREK_WARM_ROOM"
"""A variable of the parent that is as long as a member's environment may become: see `child`."""

_PACKAGES = ("httpcore", "numpy", "safetensors", "torch", "trek")
"""What a parent may import. pyarrow starts a thread when it is loaded."""

_ROOM_BYTES = 32 << 10
_OTHER_THREADS = ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS")
_KERNEL_FILES = ("sys/kernel/random/boot_id", "self/cgroup", "self/oom_score_adj")
_NAMESPACES = ("ipc", "mnt", "net", "pid", "user", "uts")
_PARENTS_OWN = ("HOME", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")


def why_not_warm(argv: Sequence[str], *, env: Mapping[str, str], imports: Sequence[str], executable: str) -> str:
    """Why a member with this command and environment must be a fresh process; empty if it may be started warm."""
    if not imports:
        return "its spec names no imports"
    if not (len(argv) >= 3 and argv[0] == executable and argv[1] == "-m" and argv[2].startswith("trek.")):
        return "its command is not a module of Trek"
    if other := next((name for name in imports if name.partition(".")[0] not in _PACKAGES), ""):
        return f"{other} may run user code"
    if env.get("PYTHONPATH") and any(not path.startswith("/") for path in env["PYTHONPATH"].split(":")):
        return "PYTHONPATH depends on the working directory"
    if found := next((name for name in _OTHER_THREADS if name in env), ""):
        return f"{found} cannot be changed after libraries are loaded"
    return ""


def import_time_variables(env: Mapping[str, str]) -> dict[str, str]:
    """What a parent must have in common with its members."""
    own = (THREADS, *WORLD_NAMES)
    return {name: value for name, value in env.items() if name.startswith(IMPORT_TIME) and name not in own}


def parent_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of the parent of a member with `env`: no more than it needs, and one thread per library."""
    own = {name: env[name] for name in _PARENTS_OWN if name in env}
    limits = {THREADS: "1", **dict.fromkeys(_OTHER_THREADS, "1")}
    return {**own, **import_time_variables(env), **limits, ROOM: " " * _ROOM_BYTES}


def parent_key(env: Mapping[str, str], *, around: Mapping[str, Any]) -> str:
    """Names the parent of a member with `env`. Members with the same key may have the same parent."""
    told = json.dumps([import_time_variables(env), dict(around)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def surroundings() -> dict[str, Any]:
    """What a process inherits from its parent and cannot change, and what the parent would have loaded."""
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {
        "python": [sys.executable, sys.version, sys.prefix],
        "trek": [__version__, _newest(Path(__file__).parents[2])],
        "torch": _stamp(_origin("torch")),
        "installed": [_stamp(Path(sysconfig.get_path(name))) for name in ("purelib", "platlib")],
        "user": [os.getuid(), os.getgid(), sorted(os.getgroups())],
        "limits": limits,
        "priority": [os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0))],
        "kernel": [_read(f"/proc/{name}") for name in _KERNEL_FILES],
        "namespaces": [str(Path(f"/proc/self/ns/{name}").readlink()) for name in _NAMESPACES],
    }


def _newest(folder: Path) -> int:
    """When a Python file under `folder` changed last."""
    newest = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                newest = max(newest, 0 if entry.name == "__pycache__" else _newest(Path(entry.path)))
            elif entry.name.endswith(".py"):
                newest = max(newest, entry.stat().st_mtime_ns)
    return newest


def _origin(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin) if spec is not None and spec.origin else None


def _stamp(path: Path | None) -> list[Any]:
    return [str(path), path.stat().st_mtime_ns] if path is not None and path.exists() else []


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
