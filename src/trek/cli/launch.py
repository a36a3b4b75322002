"""`trek launch`: any script as N processes. Prints what they write and how they failed; `trek.engines` runs them."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from trek.cli.engine_options import engine_option
from trek.cli.terminal import echo_lines
from trek.errors import InputError, OutsideError

if TYPE_CHECKING:
    from trek.engines import Engine, Exit, Gang, GangSpec, OutputLine

_GRACE_S = 10.0
_POLL_S = 0.1


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="What follows SCRIPT goes to it untouched. The first rank that fails ends the others.",
)
@click.option(
    "-n",
    "--workers",
    metavar="N|MIN:MAX",
    help="How many processes; MIN:MAX for a script with a Traveler whose processes may be killed and added while it "
    "runs.  [default: one per GPU, or per core where there is none]",
)
@click.option("--hostfile", type=click.Path(path_type=Path), help="Machines: lines of 'host slots=n'.")
@click.option("--cwd", type=click.Path(path_type=Path), help="The folder to run in.  [default: here]")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable; may be repeated.")
@click.option("-m", "--module", "is_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--no-python", "is_command", is_flag=True, help="SCRIPT is any command.")
@click.option("--engine", default="local", show_default=True, help="Where to run.")
@engine_option
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def launch(
    workers: str | None,
    hostfile: Path | None,
    cwd: Path | None,
    variables: tuple[str, ...],
    is_module: bool,
    is_command: bool,
    engine: str,
    engine_options: tuple[str, ...],
    script: str,
    args: tuple[str, ...],
) -> int:
    """Run SCRIPT as N processes, each with its rank in the variables that torchrun sets."""
    from trek.engines import GangSpec, open_engine
    from trek.engines.crowding import warn_of_crowding
    from trek.engines.option_words import read_engine_options

    chosen = open_engine(engine, read_engine_options(engine_options))
    least, most = _read_workers(workers) if workers is not None else (None, _default_workers(hostfile, chosen.slots()))
    spec = GangSpec(
        command=[*_program(script, is_module=is_module, is_command=is_command, cwd=cwd), *args],
        num_workers=most,
        env=_parse_variables(variables),
        cwd=cwd,
        hostfile=hostfile,
        workspace=b"" if chosen.shares_disk else _packed(cwd or Path.cwd()),
    )
    if hostfile is None:
        warn_of_crowding(chosen, least or most)
    with _signals_raise():
        return _run(chosen, spec) if least is None else _run_elastic(chosen, spec, least=least)


def _packed(folder: Path) -> bytes:
    """The folder to run in, for machines that may not have it."""
    from trek.experiments.package import pack

    return pack(folder).data


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


def _run_elastic(engine: Engine, spec: GangSpec, *, least: int) -> int:
    from trek.elastic.elastic_gang import ElasticGang
    from trek.elastic.joining import membership_settings

    job: ElasticGang | None = None
    try:
        job = ElasticGang(
            engine,
            spec,
            membership_settings(least, spec.num_workers),
            on_line=_Printer(has_prefix=True, word="worker"),
            on_change=lambda change: echo_lines(f"trek: {change.sentence}", err=True),
        )
        while (end := job.poll()) is None:
            time.sleep(_POLL_S)
    except _Interrupted as interrupted:
        _stop(job.gang if job is not None else None)
        return 128 + interrupted.number
    except BrokenPipeError:
        _stop(job.gang if job is not None else None)
        sys.stderr.close()
        return 128 + signal.SIGPIPE
    finally:
        if job is not None:
            job.close()
    if end.reason:
        raise OutsideError(f"the job cannot go on: {end.reason}.{_last_words(end.failed, spec)}")
    if end.num_apart:
        each = "one worker" if end.num_apart == 1 else f"each of {end.num_apart} workers"
        echo_lines(f"trek: {each} ran the script once; none was replaced, since it trains with no Traveler.", err=True)
    return _report(end.failed, spec) if end.failed is not None else 0


def _last_words(failure: Exit | None, spec: GangSpec) -> str:
    from trek.engines.failure import to_error

    return f" The last one: {to_error(failure, num_workers=spec.num_workers)}" if failure is not None else ""


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
    def __init__(self, *, has_prefix: bool, word: str = "rank") -> None:
        self._has_prefix = has_prefix
        self._word = word

    def __call__(self, line: OutputLine) -> None:
        prefix = f"[{self._word} {line.rank}] " if self._has_prefix else ""
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


def _read_workers(text: str) -> tuple[int | None, int]:
    """`4` is (None, 4), and `1:4` is (1, 4)."""
    first, colon, second = text.partition(":")
    try:
        least, most = (int(first), int(second)) if colon else (None, int(first))
    except ValueError:
        raise InputError(f"--workers must be a number, or MIN:MAX such as 1:4, got {text!r}.") from None
    if most < 1 or (least is not None and least < 1):
        raise InputError(f"--workers needs at least 1, got {text}.")
    if least is not None and least > most:
        raise InputError(f"--workers {text}: the least comes first. Write {most}:{least}.")
    return least, most


def _default_workers(hostfile: Path | None, slots: int) -> int:
    from trek.engines.hosts import read_hostfile

    # An engine without a slot says itself what one worker lacks.
    return sum(host.slots for host in read_hostfile(hostfile)) if hostfile else max(slots, 1)


def _parse_variables(variables: tuple[str, ...]) -> dict[str, str]:
    parsed = {}
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not name or not equals:
            raise InputError(f"--env {variable!r} is not NAME=VALUE. Write for example --env LEVEL=3.")
        parsed[name] = value
    return parsed
