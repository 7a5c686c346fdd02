"""A small conditional diffusion model of points in the plane: the generative task."""

from __future__ import annotations

import math
from typing import Callable, Iterator, cast

import torch
from torch import nn

from rgt_train.config import Config
from rgt_train.data.sampler import mix_bits
from rgt_train.exits import UsageError
from rgt_train.tasks import Scored

SCHEDULES = ("cosine", "linear")
PREDICTIONS = ("v", "eps", "x0")


class NoiseSchedule:
    """x_t = a_t x_0 + s_t e with a_t² + s_t² = 1; level 0 is almost clean, the last almost noise.

    Args:
        kind: ``cosine`` (Nichol and Dhariwal 2021) or ``linear`` (Ho et al. 2020, scaled to the
            number of levels).
        levels: Number of noise levels.
        prediction: The network's target: ``v`` = a e - s x_0 (Salimans and Ho 2022), ``eps`` or
            ``x0``.

    Raises:
        ValueError: An unknown kind or prediction.
    """

    def __init__(self, kind: str, levels: int, prediction: str) -> None:
        if kind not in SCHEDULES or prediction not in PREDICTIONS:
            raise ValueError(f"unknown schedule {kind!r} or prediction {prediction!r}")
        self.kind = kind
        self.levels = levels
        self.prediction = prediction
        self.alpha_bar = (
            _cosine_schedule(levels) if kind == "cosine" else _linear_schedule(levels)
        ).float()
        self.a, self.s = self.alpha_bar.sqrt(), (1 - self.alpha_bar).sqrt()

    def add_noise(
        self, clean: torch.Tensor, noise: torch.Tensor, level: torch.Tensor
    ) -> torch.Tensor:
        """Return `clean` (n, d) with `noise` of each row's `level` (n,)."""
        a, s = self.coefficients_at(level)
        return a * clean + s * noise

    def prediction_target(
        self, clean: torch.Tensor, noise: torch.Tensor, level: torch.Tensor
    ) -> torch.Tensor:
        """Return the target of the network."""
        a, s = self.coefficients_at(level)
        return {"v": a * noise - s * clean, "eps": noise, "x0": clean}[self.prediction]

    def split_prediction(
        self, predicted: torch.Tensor, noisy: torch.Tensor, level: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the clean sample and the noise of a prediction: the inverse of `prediction_target`."""
        a, s = self.coefficients_at(level)
        if self.prediction == "v":
            return a * noisy - s * predicted, s * noisy + a * predicted
        if self.prediction == "eps":
            return (noisy - s * predicted) / a, predicted
        return predicted, (noisy - a * predicted) / s

    def noise_of(
        self, noisy: torch.Tensor, clean: torch.Tensor, level: torch.Tensor
    ) -> torch.Tensor:
        """Return the noise that turns `clean` into `noisy`."""
        a, s = self.coefficients_at(level)
        return (noisy - a * clean) / s

    def loss_weights(self, level: torch.Tensor, gamma: float) -> torch.Tensor:
        """Return the Min-SNR-γ weights of the losses (Hang et al. 2023), (n, 1); 1 if `gamma` is 0.

        The weight on an error of the clean sample is min(SNR, γ), expressed for the predicted
        quantity.
        """
        a, s = self.coefficients_at(level)
        if gamma <= 0:
            return torch.ones_like(a)
        snr = (a / s) ** 2
        limited = snr.clamp(max=gamma)
        return {"x0": limited, "eps": limited / snr, "v": limited / (snr + 1)}[self.prediction]

    def coefficients_at(self, level: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a and s of each row's level, (n, 1) each."""
        where = level.to(self.a.device)
        a = self.a[where].unsqueeze(1)
        s = self.s[where].unsqueeze(1)
        return a.to(level.device), s.to(level.device)

    def descending_levels(self, steps: int) -> Iterator[tuple[int, int]]:
        """Yield (level, next level) from the noisiest to clean in `steps` steps; -1 means clean."""
        count = min(steps, self.levels)
        places = torch.linspace(self.levels - 1, 0, count)
        levels = places.round().long().tolist()
        yield from zip(levels, [*levels[1:], -1])


def _cosine_schedule(levels: int) -> torch.Tensor:
    # 0.008 keeps the first noise levels from being too small, 0.999 the last one from being
    # singular (Nichol and Dhariwal 2021, section 3.2).
    place = torch.arange(levels + 1, dtype=torch.float64) / levels
    curve = torch.cos((place + 0.008) / 1.008 * math.pi / 2) ** 2
    betas = (1 - curve[1:] / curve[:-1]).clamp(max=0.999)
    return torch.cumprod(1 - betas, dim=0)


def _linear_schedule(levels: int) -> torch.Tensor:
    # Ho et al. have 1,000 levels from 1e-4 to 0.02: fewer levels have to add as much noise in all.
    scale = 1000 / levels
    first = 1e-4 * scale
    last = 0.02 * scale
    betas = torch.linspace(first, last, levels, dtype=torch.float64)
    return torch.cumprod(1 - betas.clamp(max=0.999), dim=0)


_RADIUS, _SPREAD = 4.0, 0.25
_VALIDATION = 1024


class Denoiser(nn.Module):
    """A residual perceptron that predicts its schedule's target from point, level and class.

    Args:
        width: Units of a layer.
        layers: Hidden layers.
        classes: Number of classes; one more id means "unknown".
        schedule: Noise levels and kind of prediction; kept so that a sampler uses the same.
    """

    def __init__(self, width: int, layers: int, classes: int, schedule: NoiseSchedule) -> None:
        super().__init__()
        self.schedule = schedule
        self.nothing = classes
        self.enter = nn.Linear(2, width)
        self.kind = nn.Embedding(classes + 1, width)
        self.level = nn.Linear(32, width)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)
            )
            for _ in range(layers)
        )
        self.leave = nn.Linear(width, 2)

    def forward(self, noisy: torch.Tensor, level: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        """Map points (n, 2), levels (n,) and classes (n,) to predictions (n, 2)."""
        octaves = torch.arange(16, device=noisy.device) / 16 * math.log(1000.0)
        angles = (level.float() / self.schedule.levels).unsqueeze(1) * torch.exp(octaves)
        waves = torch.cat([angles.sin(), angles.cos()], dim=1)
        x = self.enter(noisy) + self.level(waves) + self.kind(kind)
        for layer in self.layers:
            x = x + layer(x)
        return cast(torch.Tensor, self.leave(x))


@torch.no_grad()
def sample_points(
    model: Denoiser, kinds: torch.Tensor, steps: int, guidance: float, generator: torch.Generator
) -> torch.Tensor:
    """Return a point for each of the classes `kinds`, by DDIM (Song et al. 2021).

    It uses the model's own schedule.

    Args:
        model: The model, in evaluation mode, with the averaged weights if there are any.
        kinds: Classes, (n,); `model.nothing` for none.
        steps: Steps of the sampler.
        guidance: 1 follows the conditional model, more moves further from the unconditional one.
        generator: Source of the first noise; on the CPU.
    """
    schedule = model.schedule
    device = kinds.device
    # Drawn on the CPU: a GPU's generator would give other points for the same seed.
    x = torch.randn(len(kinds), 2, generator=generator).to(device)
    # Bound of a clean coordinate: the data has unit variance, and an error at the noisiest levels
    # is multiplied by 1 / a.
    largest = 3.0
    for now, then in schedule.descending_levels(steps):
        level = torch.full((len(kinds),), now, device=device)
        predicted = model(x, level, kinds)
        if guidance != 1:
            blind = model(x, level, torch.full_like(kinds, model.nothing))
            predicted = blind + guidance * (predicted - blind)
        clean = schedule.split_prediction(predicted, x, level)[0].clamp(-largest, largest)
        if then < 0:
            return clean
        noise = schedule.noise_of(x, clean, level)
        x = schedule.add_noise(clean, noise, torch.full_like(level, then))
    return x


class Diffusion:
    """Clusters of points on a ring, one class each, scaled to unit variance by their measured deviation.

    Args:
        config: The values of the run.

    Raises:
        UsageError: `drop_condition` or `ema` is not below 1.
    """

    unit = "sample"
    per_sample = 1

    def __init__(self, config: Config) -> None:
        self._config = config
        for name in ("drop_condition", "ema"):
            if config.float(name) >= 1:
                raise UsageError(f"{name} must be below 1, not {config.float(name)}")
        self.samples = config.int("points")
        self.ema_decay = config.float("ema")
        self.schedule = NoiseSchedule(
            config.str("schedule"), config.int("timesteps"), config.str("prediction")
        )
        seed = config.int("seed")
        raw, self._kinds = _draw_clusters(self.samples, config.int("modes"), mix_bits(seed, 1))
        self.mean = raw.mean(dim=0)
        self.std = float(raw.std())
        self._train = self.normalize_points(raw)
        held_out, self._held_kinds = _draw_clusters(
            _VALIDATION, config.int("modes"), mix_bits(seed, 2)
        )
        self._held_out = self.normalize_points(held_out)

    def normalize_points(self, points: torch.Tensor) -> torch.Tensor:
        """Return points of the plane as the model's input: about zero mean and unit variance."""
        return (points - self.mean) / self.std

    def denormalize_points(self, seen: torch.Tensor) -> torch.Tensor:
        """Return the points of the plane for the model's output: the inverse of `normalize_points`."""
        return seen * self.std + self.mean

    def model(self) -> nn.Module:
        """Return a new network."""
        c = self._config
        return Denoiser(c.int("width"), c.int("layers"), c.int("modes"), self.schedule)

    def loss(
        self,
        model: nn.Module,
        indices: list[int],
        seed_of: Callable[[int], int],
        device: torch.device,
    ) -> torch.Tensor:
        """Return the weighted mean square error at random levels; the class is sometimes hidden."""
        clean = self._train[indices].to(device)
        kinds = self._kinds[indices].to(device)
        hidden = torch.rand(len(indices), device=device) < self._config.float("drop_condition")
        kinds = torch.where(hidden, self._config.int("modes"), kinds)
        level = torch.randint(self.schedule.levels, (len(indices),), device=device)
        errors = self._squared_errors(model, clean, kinds, torch.randn_like(clean), level)
        return (self.schedule.loss_weights(level, self._config.float("snr_gamma")) * errors).mean()

    def validation(self, model: nn.Module, device: torch.device) -> Iterator[Scored]:
        """Yield sum and count of the unweighted errors, with the same noise and levels every time."""
        generator = torch.Generator().manual_seed(mix_bits(self._config.int("seed"), 3))
        for start in range(0, _VALIDATION, 256):
            clean = self._held_out[start : start + 256]
            noise = torch.randn(clean.shape, generator=generator).to(device)
            # Every level equally often: drawn ones would leave some out.
            level = torch.arange(len(clean), device=device) % self.schedule.levels
            kinds = self._held_kinds[start : start + 256].to(device)
            errors = self._squared_errors(model, clean.to(device), kinds, noise, level)
            yield errors.mean(dim=1).sum().item(), len(clean)

    def scores(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Return the quality of samples, which the loss does not measure.

        ``sample_distance`` is the energy distance to held-out points (0 for the same distribution,
        two halves of the data have about 0.003), ``sample_hits`` the share within three deviations
        of the cluster of their class.
        """
        samples = 512
        kinds = torch.arange(samples) % self._config.int("modes")
        points = self.draw_points(cast(Denoiser, model), kinds.to(device))
        centres = _mode_centres(self._config.int("modes"))[kinds]
        held_out = self.denormalize_points(self._held_out[:samples])
        # Three deviations in each of the two directions.
        farthest = 3 * _SPREAD * math.sqrt(2)
        hits = (points - centres).norm(dim=1) < farthest
        return {
            "sample_distance": energy_distance(points, held_out),
            "sample_hits": float(hits.float().mean()),
        }

    def draw_points(
        self, model: Denoiser, kinds: torch.Tensor, guidance: float | None = None, seed: int = 4
    ) -> torch.Tensor:
        """Return new points of the plane, one for each of the classes `kinds`."""
        c = self._config
        generator = torch.Generator().manual_seed(mix_bits(c.int("seed"), seed))
        if guidance is None:
            strength = c.float("guidance")
        else:
            strength = guidance
        points = sample_points(model, kinds, c.int("sample_steps"), strength, generator)
        return self.denormalize_points(points.cpu())

    def _squared_errors(
        self,
        model: nn.Module,
        clean: torch.Tensor,
        kinds: torch.Tensor,
        noise: torch.Tensor,
        level: torch.Tensor,
    ) -> torch.Tensor:
        noised = self.schedule.add_noise(clean, noise, level)
        predicted = model(noised, level, kinds)
        target = self.schedule.prediction_target(clean, noise, level)
        return cast(torch.Tensor, (predicted - target) ** 2)


def energy_distance(left: torch.Tensor, right: torch.Tensor) -> float:
    """Return the energy distance of two samples (Székely and Rizzo 2013), 0 for the same distribution."""
    apart = torch.cdist(left, right).mean()
    within_left = torch.cdist(left, left).mean()
    within_right = torch.cdist(right, right).mean()
    return float(2 * apart - within_left - within_right)


def _mode_centres(modes: int) -> torch.Tensor:
    angles = torch.arange(modes) / modes * 2 * math.pi
    return _RADIUS * torch.stack([angles.cos(), angles.sin()], dim=1)


def _draw_clusters(count: int, modes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(modes, (count,), generator=generator)
    return _mode_centres(modes)[kinds] + _SPREAD * torch.randn(count, 2, generator=generator), kinds
