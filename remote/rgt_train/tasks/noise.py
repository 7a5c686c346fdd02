"""Noise levels of a diffusion model: one object for training and sampling, so that the two cannot disagree."""

from __future__ import annotations

import math
from typing import Iterator, Tuple

import torch

SCHEDULES = ("cosine", "linear")
PREDICTIONS = ("v", "eps", "x0")


class NoiseSchedule:
    """x_t = a_t x_0 + s_t e with a_t² + s_t² = 1; level 0 is almost clean, the last almost noise.

    Args:
        kind: ``cosine`` (Nichol and Dhariwal 2021) or ``linear`` (Ho et al. 2020, scaled to the number of levels).
        levels: How many noise levels there are.
        prediction: What the network predicts: ``v`` = a e - s x_0 (Salimans and Ho 2022), ``eps`` or ``x0``.

    Raises:
        ValueError: An unknown kind or prediction.
    """

    def __init__(self, kind: str, levels: int, prediction: str) -> None:
        if kind not in SCHEDULES or prediction not in PREDICTIONS:
            raise ValueError(f"unknown schedule {kind!r} or prediction {prediction!r}")
        self.kind, self.levels, self.prediction = kind, levels, prediction
        self.alpha_bar = (_cosine(levels) if kind == "cosine" else _linear(levels)).float()
        self.a, self.s = self.alpha_bar.sqrt(), (1 - self.alpha_bar).sqrt()

    def noisy(self, clean: torch.Tensor, noise: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        """Return `clean` (n, d) with `noise` of each row's `level` (n,)."""
        a, s = self.at(level)
        return a * clean + s * noise

    def target(self, clean: torch.Tensor, noise: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        """Return what the network shall predict."""
        a, s = self.at(level)
        return {"v": a * noise - s * clean, "eps": noise, "x0": clean}[self.prediction]

    def split(
        self, predicted: torch.Tensor, noisy: torch.Tensor, level: torch.Tensor
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """Return the clean sample and the noise that a prediction means: the inverse of `target`."""
        a, s = self.at(level)
        if self.prediction == "v":
            return a * noisy - s * predicted, s * noisy + a * predicted
        if self.prediction == "eps":
            return (noisy - s * predicted) / a, predicted
        return predicted, (noisy - a * predicted) / s

    def noise_of(self, noisy: torch.Tensor, clean: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        """Return the noise that makes `noisy` of `clean`."""
        a, s = self.at(level)
        return (noisy - a * clean) / s

    def weights(self, level: torch.Tensor, gamma: float) -> torch.Tensor:
        """Return the Min-SNR-γ weights of the losses (Hang et al. 2023), (n, 1); 1 where `gamma` is 0.

        The weight on an error of the clean sample is min(SNR, γ), expressed in terms of what is predicted.
        """
        a, s = self.at(level)
        if gamma <= 0:
            return torch.ones_like(a)
        snr = (a / s) ** 2
        limited = snr.clamp(max=gamma)
        return {"x0": limited, "eps": limited / snr, "v": limited / (snr + 1)}[self.prediction]

    def at(self, level: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """Return a and s of each row's level, (n, 1) each."""
        where = level.to(self.a.device)
        return self.a[where].unsqueeze(1).to(level.device), self.s[where].unsqueeze(1).to(level.device)

    def descent(self, steps: int) -> Iterator[Tuple[int, int]]:
        """Yield (level, next level) from the noisiest to clean in `steps` steps; -1 stands for clean."""
        levels = torch.linspace(self.levels - 1, 0, min(steps, self.levels)).round().long().tolist()
        yield from zip(levels, [*levels[1:], -1])  # noqa: B905  Python 3.8


def _cosine(levels: int) -> torch.Tensor:
    place = torch.arange(levels + 1, dtype=torch.float64) / levels
    curve = torch.cos((place + 0.008) / 1.008 * math.pi / 2) ** 2
    betas = (1 - curve[1:] / curve[:-1]).clamp(max=0.999)
    return torch.cumprod(1 - betas, dim=0)


def _linear(levels: int) -> torch.Tensor:
    scale = 1000 / levels
    betas = torch.linspace(1e-4 * scale, 0.02 * scale, levels, dtype=torch.float64).clamp(max=0.999)
    return torch.cumprod(1 - betas, dim=0)
