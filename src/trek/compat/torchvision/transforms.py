"""`torchvision.transforms`: what makes tensors of images of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from trek.errors import InputError


class Compose:
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, image: Any) -> Any:
        """The transformed image."""
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    """An image of bytes as floats from 0 to 1, with a first dimension for its channel."""

    def __call__(self, image: Any) -> torch.Tensor:
        """The image as a tensor of shape (1, height, width)."""
        pixels = torch.as_tensor(image)
        if pixels.dtype != torch.uint8 or pixels.dim() != 2:
            raise InputError(f"ToTensor expects an image of (height, width) bytes, got {tuple(pixels.shape)}.")
        return pixels.unsqueeze(0).float().div_(255)


class Normalize:
    """Subtract `mean` and divide by `std`, by channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = torch.tensor(mean).reshape(-1, 1, 1)
        self.std = torch.tensor(std).reshape(-1, 1, 1)

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """The normalised image."""
        return (image - self.mean) / self.std
