"""Where this process stands: its rank among others, its device, its seeds."""

from trek.world.devices import choose_device
from trek.world.environments import read_world
from trek.world.seeds import random_state, restore_random_state, seed_everything
from trek.world.world import World

__all__ = [
    "World",
    "choose_device",
    "random_state",
    "read_world",
    "restore_random_state",
    "seed_everything",
]
