"""`pq.ddp`: the same training function on every GPU, or on the CPU."""

from __future__ import annotations

import inspect
import socket
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

import trek
from trek.compat.pytorch_quik.arg import complete
from trek.compat.pytorch_quik.utils import gpus
from trek.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tqdm import tqdm

__all__ = [
    "cleanup",
    "consume_prefix_in_state_dict_if_present",
    "ddp_traverse",
    "find_free_port",
    "setup",
    "tq_bar",
    "traverse",
]

_traveler: ContextVar[trek.Traveler | None] = ContextVar("traveler", default=None)


def traverse(train_fn: Callable[..., Any], args: Namespace) -> Any:
    """Call `train_fn` on `args.gpus` GPUs, a process each, or on the CPU if there are none; what the first returned.

    `train_fn(args, gpu)` and `train_fn(gpu, args)` are both known, by the name of the first parameter. Under
    `trek launch` or torchrun, it is called on the processes that they started.
    """
    wanted, found = complete(args).gpus, gpus()
    if found and wanted and wanted > found:
        raise InputError(f"args.gpus is {wanted}, and this machine has {found}. Pass --gpus {found} or less.")
    is_launched = trek.World.from_env().size > 1
    return trek.run(
        _journey, train_fn, args, workers=None if is_launched else (min(wanted or 1, found) or 1), **settings_of(args)
    )


ddp_traverse = traverse


def train_here(train_fn: Callable[..., Any], args: Namespace) -> Any:
    """Call `train_fn` as `traverse` does, in this process alone."""
    return trek.run(_journey, train_fn, args, workers=1, **settings_of(args))


def _journey(traveler: trek.Traveler, train_fn: Callable[..., Any], args: Namespace) -> Any:
    gpu = traveler.world.local_rank if traveler.world.device.type == "cuda" else None
    with _travelling(traveler):
        return train_fn(*_arguments(train_fn, args, gpu))


def _arguments(train_fn: Callable[..., Any], args: Namespace, gpu: int | None) -> tuple[Any, ...]:
    """What a training function is called with: by the names of its parameters where it takes a `config`."""
    names = list(inspect.signature(train_fn).parameters)
    if "config" in names:
        values = {"args": args, "gpu": gpu, "config": getattr(args, "tune_config", {})}
        if unknown := [name for name in names if name not in values]:
            raise InputError(f"train_fn may take args, gpu and config, got a parameter {unknown[0]!r}.")
        return tuple(values[name] for name in names)
    return (args, gpu) if names[:1] == ["args"] else (gpu, args)


def settings_of(args: Namespace) -> dict[str, Any]:
    """Trek's settings that these arguments stand for."""
    half = "fp16" if gpus() else "bf16"
    options = {"find_unused_parameters": True} if args.find_unused_parameters else {}
    return {
        "precision": half if args.mixed_precision else "fp32",
        "show_progress": False,  # these scripts draw bars of their own
        "strategy_options": options,
    }


_report: ContextVar[Callable[[Mapping[str, Any]], None] | None] = ContextVar("report", default=None)


@contextmanager
def reporting(report: Callable[[Mapping[str, Any]], None]) -> Iterator[None]:
    """Call `report` with the row of every epoch of the training inside."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def report_epoch(row: Mapping[str, Any]) -> None:
    """An epoch has ended, with these losses."""
    report = _report.get()
    if report is not None:
        report(row)


@contextmanager
def _travelling(traveler: trek.Traveler) -> Iterator[None]:
    token = _traveler.set(traveler)
    try:
        yield
    finally:
        _traveler.reset(token)


def current_traveler(args: Namespace) -> trek.Traveler:
    """The Traveler of this process: the one that `traverse` made, or one of the script's own, closed at its end."""
    found = _traveler.get()
    if found is None:
        found = trek.Traveler(**settings_of(args))
        found.close_at_exit()
    return found


def tq_bar(esteps: int, epoch: int = 0, total_epochs: int = 0, train: bool = True) -> tqdm[Any]:
    """A progress bar of `esteps` steps, labelled `epoch: 1/2`."""
    from tqdm import tqdm

    label = f"epoch: {epoch + 1}/{total_epochs}" if train else "evaluation"
    return tqdm(total=esteps, desc=label)


def setup(gpu: Any, args: Any) -> None:
    """Nothing to do: a QuikTrek sets up the group of processes."""


def cleanup() -> None:
    """Nothing to do: the group ends with the process."""


def find_free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])
