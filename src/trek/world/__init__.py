"""Where this process stands: its rank among others, its device, its home on disk, its seeds."""

from trek.world.home import trek_home
from trek.world.world import World

__all__ = ["World", "trek_home"]
