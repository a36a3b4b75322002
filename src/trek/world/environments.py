"""Reading a World from the variables that launchers set: Trek's own, torchrun's, Open MPI's, MPICH's, Slurm's.

Pure: takes a mapping, opens no socket and asks no machine. Invalid values are refused, never guessed:
a process with a wrong rank would hang its whole gang.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from trek.errors import InputError
from trek.world.addresses import is_loopback
from trek.world.world import World

DEFAULT_PORT = 29500
"""What torch itself uses when no port is given."""

_RESERVED_STEPS = 0xFFFFFFF0
"""Slurm's batch, interactive and extern steps have ids from here on: they hold one process, not a gang."""


@dataclass(frozen=True)
class _Spelling:
    launcher: str
    rank: str
    size: str
    local_rank: str
    local_size: str


_SPELLINGS = (
    _Spelling("trek", "TREK_RANK", "TREK_WORLD_SIZE", "TREK_LOCAL_RANK", "TREK_LOCAL_WORLD_SIZE"),
    _Spelling("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    _Spelling(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Spelling("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def read_world(environ: Mapping[str, str]) -> World:
    """The World that `environ` describes; a World of one if no launcher set its variables."""
    is_step = _is_slurm_step(environ)
    for spelling in _SPELLINGS:
        # srun speaks MPICH's protocol too, but then leaves the local rank to its own variables.
        is_srun = spelling.launcher == "MPICH" and is_step and not environ.get(spelling.local_rank)
        if not is_srun and (environ.get(spelling.rank) or environ.get(spelling.size)):
            return _read_spelling(environ, spelling)
    return _read_slurm(environ) if is_step else World(device_name=_device_name(environ))


def _read_spelling(environ: Mapping[str, str], names: _Spelling) -> World:
    rank = _need_number(environ, names.rank, together_with=names.size)
    size = _need_number(environ, names.size, together_with=names.rank)
    _check_rank(names.rank, rank, size_name=names.size, size=size)
    is_one_machine = is_loopback(environ.get("MASTER_ADDR", "localhost"))
    local_size = _number(environ, names.local_size)
    local_rank = _number(environ, names.local_rank)
    if local_rank is None:
        local_rank = rank if is_one_machine else 0
    if local_size is None:
        local_size = size if is_one_machine else local_rank + 1
    if local_size < size and not environ.get("MASTER_ADDR"):
        raise InputError(
            f"{names.launcher} started {size} processes on several machines, but MASTER_ADDR is not set. "
            "Set it to an address of rank 0's machine that the others can reach (mpirun: -x MASTER_ADDR=host)."
        )
    return World(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        master_addr=environ.get("MASTER_ADDR") or "127.0.0.1",
        master_port=_port(environ, job=environ.get("PMIX_NAMESPACE")),
        device_name=_device_name(environ),
        secret=environ.get("TREK_JOB_SECRET", ""),
    )


def _is_slurm_step(environ: Mapping[str, str]) -> bool:
    """Whether `srun` started this process as one of several.

    A batch script and the shell of an interactive allocation also see SLURM_NTASKS, but run alone.
    """
    if not environ.get("SLURM_PROCID"):
        return False
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID")
    if step:
        return _parse("SLURM_STEP_ID", step) < _RESERVED_STEPS
    is_shell = environ.get("SLURM_JOB_NAME") in {"bash", "sh", "zsh", "interactive"}
    return bool(environ.get("SLURM_NTASKS")) and not is_shell and environ.get("ENVIRONMENT") != "BATCH"


def _read_slurm(environ: Mapping[str, str]) -> World:
    size_name = "SLURM_STEP_NUM_TASKS" if environ.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
    rank = _need_number(environ, "SLURM_PROCID", together_with=size_name)
    size = _need_number(environ, size_name, together_with="SLURM_PROCID")
    _check_rank("SLURM_PROCID", rank, size_name=size_name, size=size)
    local_rank = _need_number(environ, "SLURM_LOCALID", together_with="SLURM_PROCID")
    job = f"{environ.get('SLURM_JOB_ID', '')}.{environ.get('SLURM_STEP_ID', '')}"
    return World(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=_slurm_local_size(environ, size=size, local_rank=local_rank),
        master_addr=environ.get("MASTER_ADDR") or _first_slurm_host(environ),
        master_port=_port(environ, job=job),
        device_name=_device_name(environ),
        secret=environ.get("TREK_JOB_SECRET", ""),
    )


def _slurm_local_size(environ: Mapping[str, str], *, size: int, local_rank: int) -> int:
    tasks = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE")
    node = _number(environ, "SLURM_NODEID") or 0
    if tasks:
        counts = _expand_counts(tasks)
        if node < len(counts):
            return min(counts[node], size)
    num_nodes = _number(environ, "SLURM_STEP_NUM_NODES") or _number(environ, "SLURM_NNODES") or 1
    return max(-(-size // num_nodes), local_rank + 1)


def _expand_counts(tasks: str) -> list[int]:
    """`2(x3),1` is 2, 2, 2, 1."""
    counts: list[int] = []
    for part in tasks.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise InputError(
                f"SLURM_STEP_TASKS_PER_NODE is {tasks!r}, which is not a list of counts such as '2(x3),1'. "
                "Unset it, or start the script with srun."
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _first_slurm_host(environ: Mapping[str, str]) -> str:
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    return first_host(hosts) if hosts else "127.0.0.1"


def first_host(hosts: str) -> str:
    """The first name of a Slurm host list: `gpu[03-05,9],login` gives `gpu03`."""
    first = re.split(r",(?![^\[]*\])", hosts.strip())[0]
    name = re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first)
    if not name or "[" in name or "]" in name:
        raise InputError(
            f"the Slurm host list {hosts!r} cannot be read. Set MASTER_ADDR to the host of rank 0 instead."
        )
    return name


def _port(environ: Mapping[str, str], *, job: str | None) -> int:
    """MASTER_PORT, or a port that every process of the job computes alike and that other jobs rarely share."""
    named = _number(environ, "MASTER_PORT")
    if named is not None:
        if named > 65535:
            raise InputError(f"MASTER_PORT must be at most 65535, got {named}. Use a port between 1024 and 65535.")
        return named
    return 20000 + zlib.crc32(job.encode()) % 10000 if job else DEFAULT_PORT


def _device_name(environ: Mapping[str, str]) -> str:
    return environ.get("TREK_DEVICE") or "auto"


def _need_number(environ: Mapping[str, str], name: str, *, together_with: str) -> int:
    number = _number(environ, name)
    if number is None:
        raise InputError(f"{together_with} is set, but {name} is not. Set both, or neither to run as a single process.")
    return number


def _check_rank(name: str, rank: int, *, size_name: str, size: int) -> None:
    if rank >= size:
        raise InputError(
            f"{name} is {rank} and {size_name} is {size}, but ranks run from 0 to {max(size - 1, 0)}. "
            "Unset both, or let the launcher set them."
        )


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name)
    return _parse(name, text) if text else None


def _parse(name: str, text: str) -> int:
    if not re.fullmatch(r"\s*\d+\s*", text):
        raise InputError(
            f"{name} is {text!r}, which is not a whole number of at least 0. Unset it, or let the launcher set it."
        )
    return int(text)
