"""A small convolutional network on drawn shapes: the vision task, with batch norm and augmentation."""

from __future__ import annotations

import random
from typing import Callable, Iterator, List, Tuple, cast

import torch
from torch import nn
from torch.nn import functional

from rgt_train.config.merge import Config
from rgt_train.sampler import mix

SHAPES = ("disc", "square", "cross", "ring")


class ShapeNet(nn.Module):
    """Two convolutions with batch norm and a linear head.

    Args:
        width: Channels of the first convolution; the second has twice as many.
        dropout: Dropout probability before the head.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width)
        self.drop, self.head = nn.Dropout(dropout), nn.Linear(2 * width, len(SHAPES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images (batch, 1, size, size) to logits (batch, 4)."""
        x = functional.max_pool2d(torch.relu(self.norm1(self.conv1(images))), 2)
        x = torch.relu(self.norm2(self.conv2(x))).amax(dim=(2, 3))
        return cast(torch.Tensor, self.head(self.drop(x)))


class ImageClassifier:
    """Shapes of random place and size on noise; a sample is drawn anew from its index each time.

    Args:
        config: The values of the run.
    """

    unit = "img"
    per_sample = 1

    def __init__(self, config: Config) -> None:
        self._config = config
        self.samples = config.int("images")
        self._size, self._noise, self._seed = config.int("size"), config.float("noise"), config.int("seed")

    def model(self) -> nn.Module:
        """Return a new network."""
        return ShapeNet(self._config.int("width"), self._config.float("dropout"))

    def loss(
        self, model: nn.Module, indices: List[int], seed_of: Callable[[int], int], device: torch.device
    ) -> torch.Tensor:
        """Return the mean cross entropy; each image is flipped by its own seed."""
        images, labels = self._batch([mix(self._seed, 1, index) for index in indices])
        for row, index in enumerate(indices):
            bits = seed_of(index)
            if bits & 1:
                images[row] = images[row].flip(-1)
            if bits & 2:
                images[row] = images[row].flip(-2)
        return functional.cross_entropy(model(images.to(device)), labels.to(device))

    def validation(self, model: nn.Module, device: torch.device) -> Iterator[float]:
        """Yield the loss of 8 batches of 32 images that are not trained on and not augmented."""
        for batch in range(8):
            images, labels = self._batch([mix(self._seed, 2, 32 * batch + i) for i in range(32)])
            yield float(functional.cross_entropy(model(images.to(device)), labels.to(device)))

    def _batch(self, seeds: List[int]) -> Tuple[torch.Tensor, torch.Tensor]:
        size = self._size
        axis = torch.arange(size, dtype=torch.float32)
        images, labels = torch.empty(len(seeds), 1, size, size), torch.empty(len(seeds), dtype=torch.int64)
        for row, seed in enumerate(seeds):
            draw = random.Random(seed)
            kind = int(draw.random() * len(SHAPES))
            radius = size * (0.15 + 0.2 * draw.random())
            y, x = (radius + draw.random() * (size - 1 - 2 * radius) for _ in range(2))
            dy, dx = (axis - y).abs().unsqueeze(1), (axis - x).abs().unsqueeze(0)
            far = (dy * dy + dx * dx).sqrt()
            mask = {
                "disc": far <= radius,
                "square": torch.maximum(dy, dx) <= 0.8 * radius,
                "cross": (torch.minimum(dy, dx) <= 1) & (torch.maximum(dy, dx) <= radius),
                "ring": (far <= radius) & (far >= radius - 1.5),
            }[SHAPES[kind]]
            generator = torch.Generator().manual_seed(seed)
            images[row, 0] = mask + self._noise * torch.randn(size, size, generator=generator)
            labels[row] = kind
        return images, labels
