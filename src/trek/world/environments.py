"""Reading a World from the variables that launchers set: Trek's own, torchrun's, Open MPI's, MPICH's, Slurm's.

The innermost launcher wins: a process that Trek starts finds no variables of the launchers around Trek, so those of
another launcher were set by one that runs inside. Pure: takes a mapping, opens no socket and asks no machine. Invalid
values are refused, never guessed: a process with a wrong rank would hang its whole gang.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
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

    @property
    def names(self) -> tuple[str, ...]:
        return (self.rank, self.size, self.local_rank, self.local_size)


_TREK = _Spelling("trek", "TREK_RANK", "TREK_WORLD_SIZE", "TREK_LOCAL_RANK", "TREK_LOCAL_WORLD_SIZE")
_TORCHRUN = _Spelling("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_MPI = (
    _Spelling(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Spelling("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
LAUNCHER_NAMES = frozenset({"SLURM_PROCID", *(name for spelling in _MPI for name in spelling.names)})
"""The variables of other launchers that make a process one of several; torchrun's are Trek's too."""


def read_world(environ: Mapping[str, str], *, find_mpich_job: Callable[[], str | None] = lambda: None) -> World:
    """The World that `environ` describes; a World of one if no launcher set its variables.

    `find_mpich_job` names the job of MPICH, whose variables do not, in the same way in all its processes of a machine.
    """
    inner = _without_treks(environ)
    is_step = _is_slurm_step(inner)
    for spelling in (_TORCHRUN, *_MPI):
        # srun speaks MPICH's protocol too, but then leaves the local rank to its own variables.
        is_mpich = spelling.launcher == "MPICH"
        is_srun = is_mpich and is_step and not inner.get(spelling.local_rank)
        if not is_srun and (inner.get(spelling.rank) or inner.get(spelling.size)):
            return _read_spelling(inner, spelling, find_job=find_mpich_job if is_mpich else lambda: None)
    if is_step:
        return _read_slurm(inner)
    if environ.get(_TREK.rank) or environ.get(_TREK.size):
        return _read_spelling(environ, _TREK)
    return World(device_name=_device_name(environ))


def _without_treks(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without those of torchrun's variables that Trek set, and that no launcher inside has changed."""
    inner = dict(environ)
    if not environ.get(_TREK.rank):
        return inner
    is_same_rank = all(inner.get(name) == inner.get(f"TREK_{name}") for name in (_TORCHRUN.rank, _TORCHRUN.size))
    meeting = f"{inner.get('MASTER_ADDR')}:{inner.get('MASTER_PORT')}"
    is_same_meeting = meeting == inner.get("TREK_MEETING", meeting)
    if is_same_rank and (is_same_meeting or LAUNCHER_NAMES & inner.keys()):
        inner = {name: value for name, value in inner.items() if name not in _TORCHRUN.names}
    if is_same_meeting:
        inner = {name: value for name, value in inner.items() if name not in ("MASTER_ADDR", "MASTER_PORT")}
    return inner


def _read_spelling(
    environ: Mapping[str, str], names: _Spelling, *, find_job: Callable[[], str | None] = lambda: None
) -> World:
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
        master_port=_port(environ, job=environ.get("PMIX_NAMESPACE") or (find_job() if local_size == size else None)),
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
