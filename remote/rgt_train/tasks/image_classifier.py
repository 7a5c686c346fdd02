"""A small convolutional network on drawn shapes: the vision task, with augmentation and batch or group norm."""

from __future__ import annotations

import random
from typing import Callable, Iterator, Sequence, cast

import torch
from torch import nn
from torch.nn import functional

from rgt_train.config import Config
from rgt_train.data.sampler import mix_bits
from rgt_train.exits import UsageError
from rgt_train.tasks import Scored

SHAPES = ("disc", "square", "cross", "ring")


def draw_shapes(
    seeds: Sequence[int], size: int, noise: float, rarity: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one image for each seed, (n, 1, size, size), and their labels, (n,).

    Args:
        seeds: One for each image.
        size: Pixels of a side.
        noise: Standard deviation of the noise.
        rarity: How much rarer each shape is than the previous one, from 0 to below 1.
    """
    axis = torch.arange(size, dtype=torch.float32)
    images = torch.empty(len(seeds), 1, size, size)
    labels = torch.empty(len(seeds), dtype=torch.int64)
    odds = [(1 - rarity) ** kind for kind in range(len(SHAPES))]
    for row, seed in enumerate(seeds):
        # A generator per image: the same image for any order and number of workers.
        throw = random.Random(seed)
        kind = _pick_shape(throw.random(), odds)
        radius = size * (0.15 + 0.2 * throw.random())
        room = size - 1 - 2 * radius
        # Other draws, or these in another order, would make other images of the same seeds.
        y = radius + throw.random() * room
        x = radius + throw.random() * room
        dy = (axis - y).abs().unsqueeze(1)
        dx = (axis - x).abs().unsqueeze(0)
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


def _pick_shape(share: float, odds: list[float]) -> int:
    rest = share * sum(odds)
    for kind, weight in enumerate(odds):
        rest -= weight
        if rest < 0:
            return kind
    return len(odds) - 1


_BATCH, _BATCHES, _MEASURED = 32, 8, 256


class SyncedBatchNorm(nn.BatchNorm2d):
    """Batch normalisation over the images of all ranks; on one rank the plain one.

    ``torch.nn.SyncBatchNorm`` does the same, but with several ranks only on GPUs. Its parameters
    have the same names, so that a checkpoint fits all three.
    """

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Normalise images (batch, channels, height, width); collective in training."""
        dist = torch.distributed
        if not (self.training and dist.is_available() and dist.is_initialized()):
            return super().forward(images)
        from torch.distributed.nn.functional import all_reduce

        count = images.new_tensor([images.numel() / images.size(1)])
        own = torch.cat([images.sum((0, 2, 3)), count])
        sums = all_reduce(own)  # type: ignore[no-untyped-call]
        count = sums[-1]
        mean = sums[:-1] / count
        apart = images - mean.view(1, -1, 1, 1)
        # The mean first, then the deviations from it: the difference of squares loses digits.
        squares = (apart * apart).sum((0, 2, 3))
        variance = all_reduce(squares) / count  # type: ignore[no-untyped-call]
        with torch.no_grad():
            assert self.running_mean is not None and self.running_var is not None
            assert self.num_batches_tracked is not None and self.momentum is not None
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.momentum)
            # Unbiased in the running average, biased in the step, as torch's own batch norm.
            unbiased = variance * count / (count - 1)
            self.running_var.lerp_(unbiased, self.momentum)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        scaled = apart * scale.view(1, -1, 1, 1)
        return cast(torch.Tensor, scaled + self.bias.view(1, -1, 1, 1))


class ShapeNet(nn.Module):
    """Two convolutions with normalisation and a linear head.

    Args:
        width: Channels of the first convolution; the second has twice as many.
        dropout: Dropout probability before the head.
        norm: ``batch``, ``sync`` or ``group``.
    """

    def __init__(self, width: int, dropout: float, norm: str = "batch") -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.norm1 = _norm_layer(norm, width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.norm2 = _norm_layer(norm, 2 * width)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(2 * width, len(SHAPES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images (batch, 1, size, size) to logits (batch, 4)."""
        first = torch.relu(self.norm1(self.conv1(images)))
        halved = functional.max_pool2d(first, 2)
        second = torch.relu(self.norm2(self.conv2(halved)))
        pooled = second.amax(dim=(2, 3))
        return cast(torch.Tensor, self.head(self.drop(pooled)))


class ImageClassifier:
    """Shapes of random place and size on noise; a sample is generated from its index each time.

    Images of the training and the validation go through the same `normalize`; only the training
    goes through `flip_images` before.

    Args:
        config: The values of the run.

    Raises:
        UsageError: `width` is not a multiple of 4, or `imbalance` or `label_smoothing` leaves no
            classes.
    """

    unit = "img"
    per_sample = 1

    def __init__(self, config: Config) -> None:
        self._config = config
        if config.int("width") % 4:
            raise UsageError(f"width {config.int('width')} must be a multiple of 4")
        for name in ("imbalance", "label_smoothing"):
            if config.float(name) >= 1:
                raise UsageError(f"{name} must be below 1, not {config.float(name)}")
        self.samples = config.int("images")
        self._seed = config.int("seed")
        # Statistics of training images alone, used for every image.
        images, labels = self._draw_images(self._train_seeds(range(min(_MEASURED, self.samples))))
        self.mean = float(images.mean())
        self.std = float(images.std())
        if config.bool("balance"):
            self.class_weights = _balanced_weights(labels)
        else:
            self.class_weights = torch.ones(len(SHAPES))

    def model(self) -> nn.Module:
        """Return a new network."""
        return ShapeNet(self._config.int("width"), self._config.float("dropout"), self.norm_kind)

    @property
    def norm_kind(self) -> str:
        """``batch``, ``sync`` or ``group``: the value chosen by the config, with ``auto`` resolved."""
        chosen = self._config.str("norm")
        batch = self._config.int("batch")
        if chosen != "auto":
            return chosen
        # Minimum images of a batch, over all ranks, for which ``auto`` chooses batch normalisation.
        # Not per rank: the same run must be able to continue with another number of ranks, and its
        # network cannot change.
        least_for_batch_norm = 8
        if batch >= least_for_batch_norm:
            return "batch"
        return "group"

    def normalize(self, images: torch.Tensor) -> torch.Tensor:
        """Return `images` with about zero mean and unit deviation."""
        return (images - self.mean) / self.std

    def flip_images(self, images: torch.Tensor, seeds: Sequence[int]) -> torch.Tensor:
        """Return `images` flipped, each by its own seed; for the training only."""
        turned = images.clone()
        for row, bits in enumerate(seeds):
            axes = []
            if bits & 1:
                axes.append(-1)
            if bits & 2:
                axes.append(-2)
            if axes:
                turned[row] = images[row].flip(axes)
        return turned

    def loss(
        self,
        model: nn.Module,
        indices: list[int],
        seed_of: Callable[[int], int],
        device: torch.device,
    ) -> torch.Tensor:
        """Return the mean cross entropy of augmented images, smoothed and weighted by the config.

        Divided by the number of images and not by the sum of their weights, as torch's own mean
        would be: so parts of a batch, on several ranks or one after the other, add up to the whole
        batch.
        """
        images, labels = self._draw_images(self._train_seeds(indices))
        images = self.normalize(self.flip_images(images, [seed_of(index) for index in indices]))
        total = functional.cross_entropy(
            model(images.to(device)),
            labels.to(device),
            weight=self.class_weights.to(device),
            label_smoothing=self._config.float("label_smoothing"),
            reduction="sum",
        )
        return total / len(labels)

    def validation(self, model: nn.Module, device: torch.device) -> Iterator[Scored]:
        """Yield sum and count of the plain cross entropies of held-out images, not augmented."""
        for logits, labels in self._held_out(model, device):
            yield functional.cross_entropy(logits, labels, reduction="sum").item(), len(labels)

    def scores(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Return the accuracy, and the mean accuracy of the classes, rare ones included."""
        right = torch.zeros(len(SHAPES))
        seen = torch.zeros(len(SHAPES))
        for logits, labels in self._held_out(model, device):
            hit = (logits.argmax(dim=1) == labels).float().cpu()
            right.index_add_(0, labels.cpu(), hit)
            seen.index_add_(0, labels.cpu(), torch.ones(len(labels)))
        there = seen > 0
        return {
            "val_accuracy": float(right.sum() / seen.sum()),
            "val_macro_recall": float((right[there] / seen[there]).mean()),
        }

    def _held_out(
        self, model: nn.Module, device: torch.device
    ) -> Iterator["tuple[torch.Tensor, torch.Tensor]"]:
        for batch in range(_BATCHES):
            images, labels = self._draw_images(
                [mix_bits(self._seed, 2, _BATCH * batch + i) for i in range(_BATCH)]
            )
            yield model(self.normalize(images).to(device)), labels.to(device)

    def _train_seeds(self, indices: Sequence[int]) -> list[int]:
        return [mix_bits(self._seed, 1, index) for index in indices]

    def _draw_images(self, seeds: list[int]) -> "tuple[torch.Tensor, torch.Tensor]":
        c = self._config
        return draw_shapes(seeds, c.int("size"), c.float("noise"), c.float("imbalance"))


def _norm_layer(kind: str, channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "sync":
        return SyncedBatchNorm(channels)
    return nn.GroupNorm(4, channels)


def _balanced_weights(labels: torch.Tensor) -> torch.Tensor:
    """Return weights that give every class the same share in the loss; mean 1 over the samples."""
    counts = torch.bincount(labels, minlength=len(SHAPES)).clamp(min=1)
    return len(labels) / (len(SHAPES) * counts.float())
