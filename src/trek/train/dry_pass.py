"""The dry pass: a few batches that do not count, before a run begins, so that its mistakes are found at once.

It trains and validates as the run does, with the same errors, and records, saves and reports nothing. Everything that
it changed is put back by `RunState.held`, so that the run is the same to the bit with it and without.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from trek.train.callbacks.callback import Callback
from trek.train.metrics.metric_sums import check_reductions

if TYPE_CHECKING:
    from trek.train.trainer import Trainer

_VALIDATION_HOOKS = ("on_validation_start", "on_validation_epoch_start", "on_validation_epoch_end")


def run_dry(trainer: Trainer, num_batches: int) -> None:
    """Train and validate `num_batches` batches; does nothing where that could change the run, or what is outside of it.

    Called on all ranks together, before anything is read.
    """
    if not num_batches or not _can_be_dry(trainer):
        return
    loop = trainer.traveler.loop
    trains = not _takes_part(trainer, "on_training_epoch_start")
    validates = not (trainer.evaluates_full or trainer.validation_loader.is_read_once) and not any(
        _takes_part(trainer, hook) for hook in _VALIDATION_HOOKS
    )
    held = loop.state.held(
        training=trainer.loader if trains else None,
        validation=trainer.validation_loader if validates else None,
        others=[trainer.trial, *trainer.callbacks.values()],
    )
    with held, trainer.context.muted(), loop.stop.ignoring():
        loop.is_dry, loop.journal.scalars.is_telling = True, False
        loop.optimization.before_step = None  # of callbacks; it is put back with the rest
        try:
            if trains:
                _train(trainer, num_batches)
                loop.check_savable()
            if validates:
                _validate(trainer, num_batches)
        finally:
            loop.is_dry, loop.journal.scalars.is_telling = False, loop.world.is_leader


def _can_be_dry(trainer: Trainer) -> bool:
    """Not where a run goes on or workers come and go, nor for what cannot be put back: rows in tables, recorded steps,
    and parameters that the first batch makes.
    """
    loop = trainer.traveler.loop
    parameters = [p for model in loop.optimization.models for p in model.parameters()]
    has_tables = loop.strategy.tables is not None or loop.strategy.name == "ps"
    is_begun = loop.position.batches > 0 or loop.position.epoch > 0
    return not (
        is_begun or loop.group.is_elastic or has_tables or loop.settings.capture or any(map(is_lazy, parameters))
    )


def _takes_part(trainer: Trainer, hook: str) -> bool:
    """Whether a callback prepares or completes what the dry pass would do without it."""
    return any(getattr(type(one), hook) is not getattr(Callback, hook) for one in trainer.callbacks.values())


def _train(trainer: Trainer, num_batches: int) -> None:
    loop = trainer.traveler.loop
    length = loop.settings.max_length
    if length is not None and length.unit == "batches":
        num_batches = min(num_batches, length.count)
    loop.optimization.set_mode(is_training=True)
    loop.feed.open_epoch()
    portions = loop.feed.training(trainer.loader)
    for portion in islice(portions, num_batches):
        loop.optimization.begin(portion)
        with loop.batch_context(portion):
            trainer.train_one(portion.data)
        loop.optimization.end_batch(loop.position.batches)
        loop.instruments.beat()
    portions.close()  # type: ignore[attr-defined]  # a generator: what it has begun to read ends here


def _validate(trainer: Trainer, num_batches: int) -> None:
    loop = trainer.traveler.loop
    loop.begin_validation()
    portions = loop.feed.validation(trainer.validation_loader)
    has_returned = False
    with torch.no_grad():
        for index, portion in enumerate(islice(portions, num_batches)):
            with loop.batch_context(portion):
                has_returned |= trainer.evaluate_one(portion.data, index)[0]
            loop.instruments.beat()
    portions.close()  # type: ignore[attr-defined]
    _check_metrics(trainer, has_returned=has_returned)
    loop.state.leave_validation()


def _check_metrics(trainer: Trainer, *, has_returned: bool) -> None:
    """Whether the validation can have the metrics that it must have; those of objects and reducers are not computed,
    since the metric of a few records may not exist.
    """
    loop = trainer.traveler.loop
    check_reductions(trainer.reductions())
    reducers = [named for named in loop.journal.reducers if named.for_validation]
    names = [*loop.journal.logged_names(), *(named.name for named in reducers if named.name is not None)]
    is_open = bool(loop.journal.metric_objects()) or any(named.name is None for named in reducers)
    known = loop.strategy.gather([sorted(names), is_open, has_returned])
    if any(is_open for _, is_open, _ in known):
        return
    found = sorted({name for names, _, _ in known for name in names})
    if not found and not any(returned for _, _, returned in known) and _returns_nothing(trainer.trial.evaluate_batch):
        trainer.refuse_validation_without_result()
    if found or any(returned for _, _, returned in known):
        loop.goal.check(dict.fromkeys(found, 0.0))


def _returns_nothing(function: Callable[..., Any]) -> bool:
    """Whether a function of the user has no `return` with a value."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return False
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_VALUE" and (instruction.is_jump_target or not _is_none(before)):
            return False
        if instruction.opname == "RETURN_CONST" and instruction.argval is not None:
            return False
        before = instruction
    return True


def _is_none(instruction: dis.Instruction | None) -> bool:
    return instruction is not None and instruction.opname == "LOAD_CONST" and instruction.argval is None
