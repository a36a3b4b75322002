"""Opens the loop of a run: which strategy keeps its ranks together, who they are, and how they read their batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from trek.elastic.joining import elastic_world, is_elastic, open_member
from trek.strategies.strategy_registry import default_strategy, open_elastic_strategy, open_strategy
from trek.train.loop.elastic_group import ElasticGroup
from trek.train.loop.leased_loop import LeasedLoop
from trek.train.loop.training_loop import TrainingLoop
from trek.train.loop.worker_group import WorkerGroup
from trek.train.setup import RunSetup

if TYPE_CHECKING:
    from trek.strategies.elastic_ps import ElasticServers


def open_loop(setup: RunSetup) -> TrainingLoop:
    """The loop of this rank, connected to the other ranks; workers of an elastic job join them with `restore`."""
    settings, options = setup.settings, setup.settings.strategy_options
    if not is_elastic():
        name = settings.strategy or default_strategy(setup.world.size)
        fixed = open_strategy(name, setup.world, **options)
        fixed.setup()
        return TrainingLoop(setup, strategy=fixed, group=WorkerGroup())
    world, is_exact = elastic_world(setup.world), settings.elastic == "exact"
    strategy = open_elastic_strategy(settings.strategy, world, is_exact=is_exact, options=options)
    strategy.setup()
    group = ElasticGroup(open_member(world), strategy, stop=setup.stop)
    if strategy.leases_work:
        return LeasedLoop(setup, strategy=cast("ElasticServers", strategy), group=group)
    return TrainingLoop(setup, strategy=strategy, group=group)
