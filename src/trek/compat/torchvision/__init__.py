"""The few names of torchvision that the scripts of the other projects need, where torchvision is not installed.

MNIST and the transforms that go with it, over `trek.data`. Scripts that need more need torchvision itself.
"""

from __future__ import annotations

from trek.compat.torchvision import datasets, transforms

__all__ = ["datasets", "transforms"]
