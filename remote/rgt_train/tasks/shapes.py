"""Images without a download: drawn shapes of random place and size on noise, the same for the same seed."""

from __future__ import annotations

import random
from typing import List, Sequence, Tuple

import torch

SHAPES = ("disc", "square", "cross", "ring")


def draw(
    seeds: Sequence[int], size: int, noise: float, rarity: float = 0.0
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Return one image for each seed, (n, 1, size, size), and their labels, (n,).

    Args:
        seeds: One for each image.
        size: Pixels of a side.
        noise: Standard deviation of the noise.
        rarity: How much rarer each shape is than the one before it, from 0 to below 1.
    """
    axis = torch.arange(size, dtype=torch.float32)
    images, labels = torch.empty(len(seeds), 1, size, size), torch.empty(len(seeds), dtype=torch.int64)
    odds = [(1 - rarity) ** kind for kind in range(len(SHAPES))]
    for row, seed in enumerate(seeds):
        throw = random.Random(seed)
        kind = _pick(throw.random(), odds)
        radius = size * (0.15 + 0.2 * throw.random())
        y, x = (radius + throw.random() * (size - 1 - 2 * radius) for _ in range(2))
        dy, dx = (axis - y).abs().unsqueeze(1), (axis - x).abs().unsqueeze(0)
        far = (dy * dy + dx * dx).sqrt()
        shape = SHAPES[kind]
        if shape == "disc":
            mask = far <= radius
        elif shape == "square":
            mask = torch.maximum(dy, dx) <= 0.8 * radius
        elif shape == "cross":
            mask = (torch.minimum(dy, dx) <= 1) & (torch.maximum(dy, dx) <= radius)
        else:
            mask = (far <= radius) & (far >= radius - 1.5)
        generator = torch.Generator().manual_seed(seed)
        images[row, 0] = mask + noise * torch.randn(size, size, generator=generator)
        labels[row] = kind
    return images, labels


def _pick(share: float, odds: List[float]) -> int:
    rest = share * sum(odds)
    for kind, weight in enumerate(odds):
        rest -= weight
        if rest < 0:
            return kind
    return len(odds) - 1
