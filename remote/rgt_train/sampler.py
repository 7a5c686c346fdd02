"""Data order without state: the batches of an epoch are a pure function of (seed, epoch)."""

from __future__ import annotations

from typing import AbstractSet, Any, Callable, Container, Dict, Iterator, List, Optional

import torch

_MASK = (1 << 64) - 1


def mix(*parts: int) -> int:
    """Return 63 well-mixed bits of `parts` (splitmix64), so that near seeds give unrelated orders."""
    z = 0
    for part in parts:
        z = (z + (part & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        z ^= z >> 31
    return z >> 1


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """Return the seed for augmenting sample `index` in `epoch`.

    Augmentation seeded like this is the same after a resume and for any number of loader workers; the workers' own
    random state is neither.
    """
    return mix(seed, epoch, index, 0x617567)


class EpochSampler:
    """Cuts the shuffled samples of each epoch into batches.

    Args:
        samples: How many samples there are; they are the indices 0 to samples - 1.
        batch_size: Samples in a batch; the last batch of an epoch may be smaller.
        seed: Seed of the order.
        steps_per_epoch: Optimizer steps after which an epoch ends; None for all samples.
        accumulate: Batches that make one optimizer step. A window never spans two epochs.

    Raises:
        ValueError: Sizes that are not positive, or more steps asked for than the samples give.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        seed: int,
        *,
        steps_per_epoch: Optional[int] = None,
        accumulate: int = 1,
    ) -> None:
        if samples < 1 or batch_size < 1 or accumulate < 1:
            raise ValueError(
                "samples, batch_size and accumulate must be positive, "
                f"not {samples}, {batch_size}, {accumulate}"
            )
        self.samples, self.batch_size, self.seed, self.accumulate = samples, batch_size, seed, accumulate
        available = max(1, -(-samples // batch_size) // accumulate)
        if steps_per_epoch is not None and not 1 <= steps_per_epoch <= available:
            raise ValueError(
                f"steps_per_epoch is {steps_per_epoch}, but {samples} samples give 1 to {available}"
            )
        self.steps_per_epoch = steps_per_epoch or available

    def order(self, epoch: int) -> torch.Tensor:
        """Return the permutation of all samples in `epoch`, shape (samples,), int64."""
        generator = torch.Generator().manual_seed(mix(self.seed, epoch))
        return torch.randperm(self.samples, generator=generator)

    def batches(self, epoch: int, done_steps: int = 0, left_out: Container[int] = ()) -> Iterator[List[int]]:
        """Yield the batches of `epoch` that are left after `done_steps` optimizer steps.

        Args:
            epoch: The epoch, from 0.
            done_steps: Steps of it that are done.
            left_out: Steps of it, from 0, whose batches are not to be trained on.
        """
        order = self.order(epoch)
        last = self.steps_per_epoch * self.accumulate
        for number in range(done_steps * self.accumulate, last):
            if number // self.accumulate in left_out:
                continue
            batch = order[number * self.batch_size : (number + 1) * self.batch_size].tolist()
            if batch:
                yield batch

    def state(self) -> Dict[str, int]:
        """Return what must be equal for a cursor to keep its meaning."""
        return {
            "samples": self.samples,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "accumulate": self.accumulate,
            "steps_per_epoch": self.steps_per_epoch,
        }


class BatchPlan:
    """What is left of one epoch, as a batch sampler for `torch.utils.data.DataLoader` or a plain loop.

    Args:
        sampler: Where the order comes from.
        epoch: The epoch, from 0.
        done_steps: Steps of it that are done.
        before_first: Called when the first batch is asked for. A `DataLoader` draws a random number when it is
            iterated; random state that is put back earlier would be one draw off.
        left_out: Steps of the epoch, from 0, that are not trained on.
    """

    def __init__(
        self,
        sampler: EpochSampler,
        epoch: int,
        done_steps: int,
        before_first: Callable[[], Any],
        left_out: AbstractSet[int] = frozenset(),
    ) -> None:
        self._sampler, self._epoch, self._done = sampler, epoch, done_steps
        self._before_first = before_first
        self._left_out = {step for step in left_out if done_steps <= step < sampler.steps_per_epoch}

    def __len__(self) -> int:
        """Return the number of batches left."""
        steps = self._sampler.steps_per_epoch - self._done - len(self._left_out)
        return steps * self._sampler.accumulate

    def __iter__(self) -> Iterator[List[int]]:
        """Yield lists of sample indices."""
        batches = self._sampler.batches(self._epoch, self._done, self._left_out)
        self._before_first()
        yield from batches
