"""`trek launch`: any script as N processes. Prints what they write and how they failed; `trek.engines` runs them."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from trek.cli.terminal import echo_lines
from trek.errors import InputError

if TYPE_CHECKING:
    from trek.engines import Engine, Exit, Gang, GangSpec, OutputLine

_GRACE_S = 10.0


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="What follows SCRIPT goes to it untouched. The first rank that fails ends the others.",
)
@click.option(
    "-n", "--workers", type=int, help="How many processes.  [default: one per GPU, or per core where there is none]"
)
@click.option("--hostfile", type=click.Path(path_type=Path), help="Machines: lines of 'host slots=n'.")
@click.option("--cwd", type=click.Path(path_type=Path), help="The folder to run in.  [default: here]")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable; may be repeated.")
@click.option("-m", "--module", "is_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--no-python", "is_command", is_flag=True, help="SCRIPT is any command.")
@click.option("--engine", default="local", show_default=True, help="Where to run.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def launch(
    workers: int | None,
    hostfile: Path | None,
    cwd: Path | None,
    variables: tuple[str, ...],
    is_module: bool,
    is_command: bool,
    engine: str,
    script: str,
    args: tuple[str, ...],
) -> int:
    """Run SCRIPT as N processes, each with its rank in the variables that torchrun sets."""
    from trek.engines import GangSpec, open_engine

    chosen = open_engine(engine)
    spec = GangSpec(
        command=[*_program(script, is_module=is_module, is_command=is_command, cwd=cwd), *args],
        num_workers=_default_workers(hostfile, chosen.slots()) if workers is None else _checked_workers(workers),
        env=_parse_variables(variables),
        cwd=cwd,
        hostfile=hostfile,
    )
    with _signals_raise():
        return _run(chosen, spec)


class _Interrupted(BaseException):
    def __init__(self, number: int) -> None:
        self.number = number


def _run(engine: Engine, spec: GangSpec) -> int:
    gang: Gang | None = None
    try:
        gang = engine.start(spec, on_line=_Printer(has_prefix=spec.num_workers > 1))
        failure = gang.wait_first_failure()
        gang.stop(grace_s=_GRACE_S)
        gang.wait()  # raises what the printer met last
    except _Interrupted as interrupted:
        _stop(gang)
        return 128 + interrupted.number
    except BrokenPipeError:  # whoever read our output has gone, as `head` does
        _stop(gang)
        sys.stderr.close()
        return 128 + signal.SIGPIPE
    return _report(failure, spec) if failure else 0


def _report(failure: Exit, spec: GangSpec) -> int:
    from trek.engines.failure import describe_failure, exit_status, find_unreached

    if (unreached := find_unreached(failure)) is not None:
        raise unreached
    echo_lines(describe_failure(failure, num_workers=spec.num_workers), err=True)
    return exit_status(failure.code)


def _stop(gang: Gang | None) -> None:
    if gang is None:  # interrupted while starting: what had started was ended by the engine
        return
    try:
        gang.stop(grace_s=_GRACE_S)
    except _Interrupted:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        gang.stop(grace_s=0)


@contextmanager
def _signals_raise() -> Iterator[None]:
    def interrupt(number: int, _: FrameType | None) -> None:
        raise _Interrupted(number)

    if threading.current_thread() is not threading.main_thread():
        yield  # a test runner; only the main thread may set handlers
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Printer:
    def __init__(self, *, has_prefix: bool) -> None:
        self._has_prefix = has_prefix

    def __call__(self, line: OutputLine) -> None:
        prefix = f"[rank {line.rank}] " if self._has_prefix else ""
        target = sys.stdout if line.stream == "stdout" else sys.stderr
        target.write(f"{prefix}{line.text}\n")
        target.flush()


def _program(script: str, *, is_module: bool, is_command: bool, cwd: Path | None) -> list[str]:
    if is_module and is_command:
        raise InputError("--module and --no-python exclude each other: a module is run by Python. Leave one out.")
    if is_command:
        return [script]
    if is_module:
        return [sys.executable, "-m", script]
    if not (cwd or Path()).joinpath(script).is_file():
        raise InputError(
            f"script {script!r} does not exist. Name a Python file, a module with -m, or a command with --no-python."
        )
    return [sys.executable, script]


def _checked_workers(workers: int) -> int:
    if workers < 1:
        raise InputError(f"--workers needs at least 1, got {workers}.")
    return workers


def _default_workers(hostfile: Path | None, slots: int) -> int:
    from trek.engines.hosts import read_hostfile

    return sum(host.slots for host in read_hostfile(hostfile)) if hostfile else slots


def _parse_variables(variables: tuple[str, ...]) -> dict[str, str]:
    parsed = {}
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not name or not equals:
            raise InputError(f"--env {variable!r} is not NAME=VALUE. Write for example --env LEVEL=3.")
        parsed[name] = value
    return parsed
