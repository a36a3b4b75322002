"""Performing one step's function, in a worker or a member of a gang: load inputs, call, store outputs.

Knows nothing of graphs, keys or retries, nor of the process it runs in: see `trek.flow.step_worker`.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trek.errors import InputError, OutsideError, TrekError
from trek.flow.artefacts import Stored, check_storable, store_value
from trek.flow.artefacts.classes import give_classes
from trek.flow.randomness import seed_generators, seed_of
from trek.system.disk import is_disk_full
from trek.world import World

_attempt: Path | None = None


def scratch() -> Path:
    """A folder for files that the running step makes. A returned `Path` in it is kept, the rest is removed."""
    if _attempt is None:
        raise InputError(
            "trek.flow.scratch() can only be called in a function that a flow runs. Elsewhere, use tempfile."
        )
    folder = _attempt / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def perform(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    num_outputs: int,
    attempt: Path,
    digest: str | None = None,
    is_keeper: bool = True,
) -> dict[str, Any]:
    """Call the function; returns `{"outputs": […]}` or `{"error": …, "traceback": …}`, as JSON can hold it.

    Only the keeper stores outputs: of several ranks that is the first. `digest` names them where they live in memory.
    """
    global _attempt
    _attempt = attempt
    try:
        result = function(*load_inputs(args), **load_inputs(dict(kwargs)))
        values = _split(result, num_outputs) if is_keeper else []
        for value in values:  # all, before the first of them is written
            check_storable(value)
        names = [f"{digest}.{index}" if digest else None for index in range(len(values))]
        stored = [
            store_value(value, attempt / f"output_{index}", digest=name)
            for index, (value, name) in enumerate(zip(values, names, strict=True))
        ]
        return {"outputs": [one.to_json() for one in stored]}
    except SystemExit as exit_:
        return {"error": f"SystemExit: exited with code {exit_.code}", "traceback": ""}
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything; it is reported with its traceback
        return full_disk(error, attempt) if is_disk_full(error) else _failure(error)
    finally:
        _attempt = None


def perform_request(
    request: Mapping[str, Any],
    *,
    attempt: Path,
    world: World,
    place: Callable[[Any], Any] = lambda inputs: inputs,
    keep: Callable[[Any], Any] = lambda result: result,
) -> dict[str, Any]:
    """Perform what the runner wrote for a member of a gang: a pickle for the processes it starts, and nothing else's.

    `place` changes the inputs, whose files may lie elsewhere here; `keep` changes the result before it is stored.
    """
    seed_generators(seed_of(request["name"], rank=world.rank))
    function = pickle.loads(request["function"])  # noqa: S301 - see the docstring
    args, kwargs, classes = pickle.loads(request["arguments"])  # noqa: S301
    give_classes(classes)
    args, kwargs = place((args, kwargs))
    return perform(
        lambda *given, **named: keep(function(*given, **named)),
        args,
        kwargs,
        num_outputs=request["num_outputs"],
        attempt=attempt,
        digest=request["digest"],
        is_keeper=world.is_leader,
    )


def _outside(error: Exception) -> dict[str, bool]:
    return {"is_outside": True} if isinstance(error, OutsideError) else {}


def load_inputs(value: Any) -> Any:
    """`value` with every stored artefact in it replaced by what it holds."""
    if isinstance(value, Stored):
        return value.load()
    if type(value) is dict:
        return {key: load_inputs(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(load_inputs(inner) for inner in value)
    return value


def _split(result: Any, num_outputs: int) -> list[Any]:
    if num_outputs == 1:
        return [result]
    if not isinstance(result, tuple | list) or len(result) != num_outputs:
        got = f"{len(result)} values" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
        raise InputError(f"the step was defined with outputs={num_outputs} and returned {got}. Return a tuple.")
    return list(result)


def full_disk(error: Exception, attempt: Path) -> dict[str, Any]:
    """The answer of a step that met a full disk: something outside failed, and not the step's code."""
    place = getattr(error, "filename", None) or attempt
    text = f"no space left in {place}. Free some space there."
    return {"error": text, "traceback": "", "is_outside": True}


def _failure(error: Exception) -> dict[str, Any]:
    """The user's frames alone: those of this package before them are cut off."""
    frames = error.__traceback__
    while frames is not None and Path(frames.tb_frame.f_code.co_filename).is_relative_to(Path(__file__).parent):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    is_ours = isinstance(error, TrekError) and frames is None
    with contextlib.suppress(OSError):  # a full disk has no room for the log, and the error must be reported
        print(error if is_ours else text, file=sys.stderr, flush=True)
    headline = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    return {"error": str(error) if is_ours else headline, "traceback": "" if is_ours else text, **_outside(error)}
