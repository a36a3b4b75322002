"""ModelVersions: the versions of the model that a server has loaded, and how they are replaced while they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trek.errors import InputError
from trek.serve.model_pool import POOLS, ModelPool
from trek.serve.model_source import ModelSource
from trek.serve.serving_metrics import ServingMetrics
from trek.serve.settings import ServeSettings
from trek.serve.tickets import Refused, error_reply
from trek.serve.weighted_choice import WeightedChoice


@dataclass(frozen=True)
class VersionPlan:
    """A version to serve: where its model is found, asked again with every reload, and its share of the requests."""

    find: Callable[[], ModelSource]
    weight: float = 1.0


class ModelVersions:
    """Loaded versions by name. All methods are for the server's event loop."""

    def __init__(self, plans: Mapping[str, VersionPlan], *, settings: ServeSettings, metrics: ServingMetrics) -> None:
        self._plans = dict(plans)
        self._settings = settings
        self._metrics = metrics
        self._pools: dict[str, ModelPool] = {}
        self._choice = WeightedChoice({version: plan.weight for version, plan in plans.items()})
        self._changing = asyncio.Lock()

    @property
    def pools(self) -> Mapping[str, ModelPool]:
        """The workers of each version."""
        return self._pools

    @property
    def weights(self) -> dict[str, float]:
        """The share of the requests of each version."""
        return {version: plan.weight for version, plan in self._plans.items()}

    @property
    def is_ready(self) -> bool:
        """Whether each version that gets requests has a worker that answers."""
        return bool(self._pools) and all(
            version in self._pools and self._pools[version].num_ready for version in self._choice.weights
        )

    def find(self, version: str | None) -> ModelPool:
        """The workers of a version, or of the one whose turn it is; Refused if there is none."""
        chosen = version if version is not None else self._choice.next()
        pool = self._pools.get(chosen)
        if pool is None:
            known = ", ".join(self._pools)
            raise Refused(error_reply(404, f"version {chosen!r} does not exist. There are: {known}."))
        return pool

    async def load_all(self) -> None:
        """Load every version; InputError if one cannot be loaded."""
        for version in list(self._plans):
            await self.reload(version)

    async def load(self, version: str, plan: VersionPlan) -> None:
        """Load a version, new or in the place of one; requests go to it once it is ready."""
        before, self._plans[version] = self._plans.get(version), plan
        try:
            await self.reload(version)
        except BaseException:
            if before is None:
                del self._plans[version]
            else:
                self._plans[version] = before
            raise
        self._choice = WeightedChoice(self.weights)

    async def reload(self, version: str) -> None:
        """Load a version again, from where it is found now. The old workers answer until the new ones are ready."""
        if version not in self._plans:
            raise InputError(f"version {version!r} does not exist. There are: {', '.join(self._plans)}.")
        async with self._changing:
            source = await asyncio.to_thread(self._plans[version].find)
            pool = POOLS.load(self._settings.engine)(
                source,
                version=version,
                settings=self._settings,
                on_batch=self._metrics.count_batch,
                on_death=self._metrics.count_death,
            )
            await pool.start()
            old, self._pools[version] = self._pools.get(version), pool
            if old is not None:
                await old.drain()

    async def unload(self, version: str) -> None:
        """Answer what a version has been given, then end it."""
        rest = {name: weight for name, weight in self.weights.items() if name != version}
        if version not in self._pools or not rest:
            raise InputError(f"version {version!r} cannot be removed: it does not exist, or is the last one.")
        async with self._changing:
            self._choice = WeightedChoice(rest)
            del self._plans[version]
            await self._pools.pop(version).drain()

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change the shares of the requests, for versions that are loaded."""
        unknown = next((version for version in weights if version not in self._pools), None)
        if unknown is not None:
            raise InputError(f"version {unknown!r} does not exist. There are: {', '.join(self._pools)}.")
        changed = {**self.weights, **weights}
        self._choice = WeightedChoice(changed)
        self._plans = {name: VersionPlan(plan.find, changed[name]) for name, plan in self._plans.items()}

    async def close(self) -> None:
        """End all workers now."""
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))
