"""`trek flow`: run pipelines of steps, and inspect their runs. Thin over `trek.flow`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from trek.cli.flow_list import list_flows
from trek.cli.flow_records import (
    find_flows,
    find_run,
    find_runs,
    follow_step_log,
    read_step_log,
    summary,
    summary_with_steps,
)
from trek.cli.render import json_option
from trek.cli.terminal import echo, echo_json, echo_lines, echo_log, visible
from trek.errors import InputError, OutsideError, StorageError, TrainingError

if TYPE_CHECKING:
    from trek.flow import Flow
    from trek.flow.dry_run import Foreseen
    from trek.flow.flow_reader import FlowReader

_PARALLEL = click.option(
    "--parallel", type=int, help="How many slots the steps may use.  [default: one per core or GPU]"
)
_ENGINE = click.option("--engine", default="local", show_default=True, help="The engine that steps run on.")
_PARAM = click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter; may be repeated."
)


@click.group()
@click.pass_obj
def flow(obj: dict[str, Any]) -> None:
    """Run pipelines of steps, and inspect their runs."""
    if obj["master"]:
        os.environ["TREK_MASTER"] = obj["master"]  # for steps that are experiments, in processes of their own


flow.add_command(list_flows)


@flow.command(add_help_option=False)
@click.argument("file", required=False)
@click.option("--from", "from_step", metavar="STEP", help="Run STEP and every step that depends on it, changed or not.")
@click.option("--only", metavar="STEP", help="Run only STEP, with the results of earlier runs as its inputs.")
@click.option("--force", is_flag=True, help="Run every step, changed or not.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show which steps would run, and why.")
@_PARAM
@_PARALLEL
@_ENGINE
@json_option
@click.option("-h", "--help", "wants_help", is_flag=True, help="Show this message, and the parameters of FILE.")
@click.pass_context
def run(
    ctx: click.Context,
    file: str | None,
    from_step: str | None,
    only: str | None,
    force: bool,
    is_dry: bool,
    params: tuple[str, ...],
    parallel: int | None,
    engine: str,
    as_json: bool,
    wants_help: bool,
) -> int:
    """Run the flow that FILE (Python or YAML) defines. Steps with a cached result are not run again."""
    from trek.flow.loading import load_flow

    if wants_help:
        echo_lines(ctx.get_help() + (_describe_params(load_flow(file)) if file else ""))
        return 0
    if file is None:
        raise InputError("FILE is missing: name the file that defines the flow, such as flow.py.")
    loaded = load_flow(file)
    if is_dry:
        given = _parse_params(loaded, params)
        foreseen = loaded.dry_run(params=given, from_step=from_step, only=only, force=force)
        return _show_dry_run(foreseen, as_json=as_json)
    settings = {"from_step": from_step, "only": only, "force": force, "engine": engine}
    return _run(loaded, params=_parse_params(loaded, params), parallel=parallel, as_json=as_json, **settings)


@flow.command()
@click.argument("flow_name", metavar="FLOW")
@click.argument("run_id", metavar="[RUN]", required=False)
@_PARAM
@_PARALLEL
@_ENGINE
@json_option
def resume(
    flow_name: str, run_id: str | None, params: tuple[str, ...], parallel: int | None, engine: str, as_json: bool
) -> int:
    """Resume a RUN (default: the newest) of FLOW (a name or a file) where it failed or was interrupted."""
    from trek.flow.loading import load_flow
    from trek.flow.run import in_folder_of

    loaded = load_flow(flow_name) if _is_file(flow_name) else None
    store = _open(loaded.name if loaded else flow_name)
    row = store.find_run(run_id)
    store.close()
    with in_folder_of(row):
        if loaded is None:
            if row.source is None:
                raise InputError(
                    f"run {row.id} was not started from a file. Resume it with flow.run(resume={row.id!r})."
                )
            loaded = load_flow(row.source)
        settings = {"engine": engine, "resume": row.id}
        return _run(loaded, params=_parse_params(loaded, params), parallel=parallel, as_json=as_json, **settings)


@flow.command()
@click.argument("flow_name", metavar="[FLOW]", required=False)
@click.argument("run_id", metavar="[RUN]", required=False)
@json_option
@click.pass_obj
def status(obj: dict[str, Any], flow_name: str | None, run_id: str | None, as_json: bool) -> None:
    """Show the runs of all flows, or the steps of one RUN (default: the newest) of FLOW and why each ran."""
    if flow_name is None:
        runs = [run for one in find_flows(obj) for run in reversed(find_runs(obj, one.name))]
        rows = [summary(run) for run in sorted(runs, key=lambda run: run.started_s)]
        _show(rows, as_json=as_json, columns=("flow", "id", "state", "seconds"))
        return
    found = summary_with_steps(find_run(obj, _name_of(flow_name), run_id))
    if as_json:
        echo_json(found)
        return
    echo(f"{found['flow']} {found['id']}: {found['state']}")
    _show(found["steps"], as_json=False, columns=("name", "state", "seconds", "reason", "error"))


@flow.command()
@click.argument("flow_name", metavar="FLOW")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "mermaid", "svg"]),
    default="text",
    show_default=True,
    help="How to draw it.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of printing.")
@json_option
@click.pass_obj
def graph(
    obj: dict[str, Any], flow_name: str, run_id: str | None, style: str, output: Path | None, as_json: bool
) -> None:
    """Draw the steps of FLOW (a name or a file) with their states and times in a RUN (default: the newest)."""
    from trek.flow import drawing

    nodes = _nodes(obj, flow_name, run_id)
    if as_json:
        rows = [{"name": n.name, "after": list(n.after), "state": n.state, "seconds": n.seconds} for n in nodes]
        echo_json(rows)
        return
    draw = {"text": drawing.draw_text, "mermaid": drawing.draw_mermaid, "svg": drawing.draw_svg}[style]
    drawn = draw(drawing.fold_maps(nodes))
    if output is None:
        echo_lines(drawn)
    else:
        output.write_text(drawn + "\n")


@flow.command()
@click.argument("flow_name", metavar="FLOW")
@click.argument("step")
@click.option("--run", "run_id", metavar="RUN", help="Which run.  [default: the newest]")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the step has ended.")
@json_option
@click.pass_obj
def logs(obj: dict[str, Any], flow_name: str, step: str, run_id: str | None, follow: bool, as_json: bool) -> None:
    """Print the log of STEP."""
    if follow and as_json:
        raise InputError("--follow and --json exclude each other: JSON is written once the log ends. Leave one out.")
    if follow:
        for line in follow_step_log(obj, _name_of(flow_name), run_id, step=step):
            echo_log(line)
        return
    lines = read_step_log(obj, _name_of(flow_name), run_id, step=step).decode(errors="replace").splitlines()
    if as_json:
        echo_json([{"step": step, "line": line} for line in lines])
        return
    for line in lines:
        echo_log(line)


@flow.command()
@click.argument("flow_name", metavar="FLOW")
@click.option(
    "--keep",
    "keep_runs",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How many of the newest runs to keep.",
)
@json_option
def clean(flow_name: str, keep_runs: int, as_json: bool) -> None:
    """Remove old runs of FLOW, and the results and files that no remaining run uses."""
    from trek.flow.cleaning import clean_flow
    from trek.flow.memory import remove_left_memory
    from trek.system.home import trek_home

    name = _name_of(flow_name)
    count, num_bytes = clean_flow(name, home=trek_home(), keep_runs=keep_runs)
    num_bytes += remove_left_memory()
    if as_json:
        echo_json({"flow": name, "artefacts": count, "bytes": num_bytes})
    else:
        echo(f"Removed {count} artefacts, {num_bytes} bytes.")


@flow.command()
@click.argument("flow_name", metavar="FLOW")
@click.argument("service", metavar="[SERVICE]", required=False)
@json_option
def stop(flow_name: str, service: str | None, as_json: bool) -> None:
    """Stop the detached services of FLOW, or one of them."""
    from trek.flow.service_steps import running_services, stop_service

    store = _open(_name_of(flow_name))
    store.close()
    running = running_services(store.services)
    if service is not None and service not in running:
        raise InputError(f"the service {service!r} of flow {store.name!r} is not running. Running: {_list(running)}.")
    chosen = running if service is None else [service]
    for name in chosen:
        stop_service(store.services / name)
    if as_json:
        echo_json([{"name": name} for name in chosen])
    else:
        echo(f"Stopped: {_list(chosen)}.")


def _show_dry_run(foreseen: list[Foreseen], *, as_json: bool) -> int:
    from trek.flow.dry_run import describe

    if as_json:
        echo_json([{"name": one.name, "action": one.action, "reason": one.reason} for one in foreseen])
    else:
        echo_lines(describe(foreseen))
    return 0


class _Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""


def _run(loaded: Flow, *, as_json: bool, **settings: Any) -> int:
    try:
        with _sigterm_interrupts():
            result = loaded.run(show=not as_json, **settings)
    except _Terminated:
        return 128 + signal.SIGTERM
    except (TrainingError, OutsideError) as error:
        if as_json and not isinstance(error, StorageError):  # a full disk may have kept the run from being recorded
            _print_newest(loaded.name)
        raise
    if as_json:
        _print_newest(loaded.name, run_id=result.id)
    return 0


def _print_newest(name: str, run_id: str | None = None) -> None:
    """The run is one of this home, even if a master is named: it has just ended here."""
    echo_json(summary_with_steps(find_run({"master": None}, name, run_id)))


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    def interrupt(number: int, _: FrameType | None) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _open(name: str) -> FlowReader:
    from trek.flow.inspect import open_reader
    from trek.system.home import trek_home

    return open_reader(name, home=trek_home())


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _is_file(text: str) -> bool:
    return Path(text.partition(":")[0]).suffix in (".py", ".yaml", ".yml")


def _name_of(flow_or_file: str) -> str:
    from trek.flow.loading import load_flow

    return load_flow(flow_or_file).name if _is_file(flow_or_file) else flow_or_file


def _nodes(obj: dict[str, Any], flow_or_file: str, run_id: str | None) -> list[Any]:
    """The graph of a run, or of a file as it is now with the states of the run's steps."""
    from trek.flow.drawing import GraphNode
    from trek.flow.graph import graph_of
    from trek.flow.inspect import flow_names, nodes_of
    from trek.flow.loading import load_flow
    from trek.system.home import trek_home

    loaded = load_flow(flow_or_file) if _is_file(flow_or_file) and not obj["master"] else None
    graph = graph_of(loaded.steps) if loaded else None
    name = loaded.name if loaded else _name_of(flow_or_file)
    if graph is not None and name not in flow_names(trek_home()):
        return [GraphNode(one["name"], tuple(one["after"])) for one in graph]
    return nodes_of(find_run(obj, name, run_id), graph=graph)


def _parse_params(loaded: Flow, params: tuple[str, ...]) -> dict[str, Any]:
    parsed = {}
    for param in params:
        name, equals, text = param.partition("=")
        if not equals:
            raise InputError(f"invalid --param {param!r}: expected NAME=VALUE, such as --param lr=0.1.")
        if name not in loaded.params:
            raise InputError(f"flow {loaded.name!r} has no parameter {name!r}. It has: {_list(loaded.params)}.")
        parsed[name] = loaded.params[name].parse(text)
    return parsed


def _describe_params(loaded: Flow) -> str:
    if not loaded.params:
        return f"\n\nFlow {loaded.name!r} has no parameters."
    lines = [
        f"  --param {one.name}={type(one.default).__name__}  {one.help}  [default: {one.default}]"
        for one in loaded.params.values()
    ]
    return "\n".join(["", "", f"Parameters of flow {loaded.name!r}:", *lines])


def _show(rows: list[dict[str, Any]], *, as_json: bool, columns: tuple[str, ...]) -> None:
    if as_json:
        echo_json(rows)
        return
    cells = [[visible(_cell(row[column])) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    for line in [list(columns), *cells]:
        echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if isinstance(value, float) else str(value)
