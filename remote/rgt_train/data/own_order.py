"""A person's own order of the data: any sampler or batch sampler, made a pure function of the epoch."""

from __future__ import annotations

import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Union

import torch
from torch.utils.data import DistributedSampler

from rgt_train.data.seeded import random_state_of
from rgt_train.exits import UsageError
from rgt_train.sampler import EpochSampler, mix

Order = Union[Iterable[Any], Callable[[int], Iterable[Any]]]
"""A sampler or batch sampler of torch's, or a function of the epoch that returns indices or lists of them."""


class OwnOrder(EpochSampler):
    """The batches of a person's own sampler, weighted, bucketed, sequential or by a budget of tokens.

    A sampler is iterated with the random state of (seed, epoch), so that each epoch has an order of its own, which a
    resume makes again without one stored index. That works for what draws from torch's, NumPy's or Python's generators
    (or a `generator` of its own), from nothing, or from `set_epoch`; another kind is refused.

    Args:
        source: The sampler.
        batch_size: Samples in a batch where it yields single indices.
        seed: Seed of the order.
        steps_per_epoch: Optimizer steps of an epoch; None for those of the first. What later epochs have above it is
            left out of them.
        accumulate: Batches that make one optimizer step.

    Raises:
        UsageError: It gives nothing, or not the same twice.
    """

    def __init__(
        self, source: Order, batch_size: int, seed: int, *, steps_per_epoch: Optional[int], accumulate: int
    ) -> None:
        if isinstance(source, DistributedSampler):
            raise UsageError(
                "sampler is a DistributedSampler: give one of all the data, each rank takes its slice of every batch"
            )
        self._source, self._size, self._order_seed = source, batch_size, seed
        self._made: Dict[int, List[List[int]]] = {}
        first = self._make(0)
        if not any(first):
            raise UsageError("sampler gives no sample")
        if self._make(0) != first:
            raise UsageError(
                "sampler gives other batches when it is asked for the same epoch again: it has random state of its "
                "own, which a resume could not put back. Seed it in set_epoch(epoch), or give a function of the epoch"
            )
        self._digest = zlib.crc32(repr(first).encode())
        super().__init__(len(first), 1, seed, steps_per_epoch=steps_per_epoch, accumulate=accumulate)
        self.samples, self.batch_size = sum(len(batch) for batch in first), batch_size

    def cutter(self, epoch: int) -> Callable[[int], List[int]]:
        """Return what gives the samples of a batch of `epoch` by its number.

        Raises:
            UsageError: The epoch has fewer batches than were planned.
        """
        batches = self._batches_of(epoch)
        planned = self.steps_per_epoch * self.window
        if len(batches) < planned:
            raise UsageError(
                f"sampler gives {len(batches)} batches in epoch {epoch + 1}, fewer than the {planned} of an epoch: "
                f"give Run(…, steps_per_epoch={max(1, len(batches) // self.window)}) or less"
            )
        return batches.__getitem__

    def size(self, number: int, epoch: int) -> int:
        """Return the number of samples in batch `number` of `epoch`."""
        return len(self._batches_of(epoch)[number])

    def state(self) -> Dict[str, int]:
        """Return what must be equal for a cursor to keep its meaning; of the order a checksum of the first epoch."""
        return {**super().state(), "order": self._digest}

    def _batches_of(self, epoch: int) -> List[List[int]]:
        if epoch not in self._made:
            kept = [(number, batches) for number, batches in self._made.items() if number == epoch - 1]
            self._made = {**dict(kept), epoch: self._make(epoch)}
        return self._made[epoch]

    def _make(self, epoch: int) -> List[List[int]]:
        seed = mix(self._order_seed, epoch)
        with random_state_of(seed):
            for part in _parts(self._source):
                if isinstance(getattr(part, "generator", None), torch.Generator):
                    part.generator.manual_seed(seed)
                if hasattr(part, "set_epoch"):
                    part.set_epoch(epoch)
            given = self._source(epoch) if callable(self._source) else self._source
            drawn = [_plain(entry) for entry in given]
        batches = [entry for entry in drawn if isinstance(entry, list)]
        if batches and len(batches) < len(drawn):
            raise UsageError("sampler gives both indices and lists of them")
        indices = [entry for entry in drawn if isinstance(entry, int)]
        return batches or [indices[at : at + self._size] for at in range(0, len(indices), self._size)]


def _parts(source: Any) -> Iterator[Any]:
    """Yield a sampler and those that it is made of."""
    while source is not None:
        yield source
        source = getattr(source, "batch_sampler", None) or getattr(source, "sampler", None)


def _plain(entry: Any) -> Union[int, List[int]]:
    if isinstance(entry, (list, tuple)) or bool(getattr(entry, "ndim", 0)):
        return [int(index) for index in entry]
    try:
        return int(entry)
    except (TypeError, ValueError) as error:
        raise UsageError(f"sampler gives {entry!r:.80}, neither an index nor a list of them") from error


def order_of(
    sampler: Optional[Order],
    samples: int,
    batch_size: int,
    seed: int,
    steps_per_epoch: Optional[int],
    accumulate: int,
    max_steps: Optional[int],
) -> EpochSampler:
    """Return the order of the data, from what a person has given to `Run`; without data that of empty steps.

    Raises:
        UsageError: It makes no order.
    """
    if sampler is not None and samples:
        raise UsageError("give samples or sampler, not both: a sampler says itself how many there are")
    if sampler is None and samples == 0 and (steps_per_epoch or max_steps):
        steps_per_epoch = steps_per_epoch or max_steps or 1
        samples = steps_per_epoch * accumulate * batch_size
    sizes = {"samples": samples, "batch_size": batch_size, "accumulate": accumulate}
    if sampler is not None:
        del sizes["samples"]
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name} is {value!r}: it must be a whole number, at least 1")
    try:
        if sampler is not None:
            return OwnOrder(sampler, batch_size, seed, steps_per_epoch=steps_per_epoch, accumulate=accumulate)
        return EpochSampler(samples, batch_size, seed, steps_per_epoch=steps_per_epoch, accumulate=accumulate)
    except ValueError as error:
        raise UsageError(str(error)) from error


def lengths(epochs: Optional[int], max_steps: Optional[int], steps_per_epoch: int) -> "tuple[int, int]":
    """Return how many epochs and how many steps a run has in all.

    Raises:
        UsageError: Neither is given, or one is not positive.
    """
    for name, value in (("epochs", epochs), ("max_steps", max_steps)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UsageError(f"{name} is {value!r}: it must be a whole number, at least 1")
    if epochs is None and max_steps is None:
        raise UsageError("give Run(…) epochs, max_steps, or both")
    most = max_steps if max_steps is not None else (epochs or 1) * steps_per_epoch
    whole = -(-most // steps_per_epoch)
    whole = whole if epochs is None else min(epochs, whole)
    return whole, min(most, whole * steps_per_epoch)
