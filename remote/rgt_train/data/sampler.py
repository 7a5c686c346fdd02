"""Data order without state: batches and samples are pure functions of seed, epoch and index.

The random state of loader workers cannot be saved: they run ahead of the training, and another
number of workers would draw other numbers. So every sample gets its own random state, from (seed,
epoch, sample id), while it is being made.
"""

from __future__ import annotations

import random
import sys
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import (
    AbstractSet,
    Any,
    Callable,
    Iterable,
    Iterator,
    Union,
)

import torch
from torch.utils.data import Dataset, DistributedSampler, get_worker_info

from rgt_train.exits import UsageError

_MASK = (1 << 64) - 1
_LOOKS = 4
"""Number of steps at the beginning of an iteration in which prefetching is detected."""


def mix_bits(*parts: int) -> int:
    """Return 63 well-mixed bits of `parts` (splitmix64), so that near seeds give unrelated orders."""
    z = 0
    for part in parts:
        # The constants are those of splitmix64; the mask keeps Python's integers at 64 bits.
        z = (z + (part & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        z ^= z >> 31
    # 63 bits: torch's manual_seed takes a signed 64-bit number.
    return z >> 1


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """Return the seed for augmenting sample `index` in `epoch`.

    Augmentation with this seed is the same after a resume and for any number of loader workers;
    with the workers' own random state it is neither.
    """
    return mix_bits(seed, epoch, index, 0x617567)


@dataclass(frozen=True)
class EpochPosition:
    """A run's position in its data.

    Attributes:
        epoch: The epoch, from 0.
        done_steps: Steps of it that are done.
        skip: Finished batches of the next step, if it stopped in the middle of its accumulation.
        left_out: Steps of the epoch, from 0, that are not trained on.
        seeded: Whether the indices must carry the seeds of their samples.
        steps: Steps of the epoch, if it is cut off before its end.
        offset: Samples of it that were used by an earlier launch with batches of another size (or
            batches, if the sampler makes them): the numbers of its batches begin there.
    """

    epoch: int
    done_steps: int = 0
    skip: int = 0
    left_out: AbstractSet[int] = frozenset()
    seeded: bool = False
    steps: int | None = None
    offset: int = 0


class EpochSampler:
    """Cuts the shuffled samples of each epoch into batches.

    Args:
        samples: Number of samples; they are the indices 0 to samples - 1.
        batch_size: Samples in a batch, over all ranks; the last batch of an epoch may be smaller.
        seed: Seed of the order.
        steps_per_epoch: Optimizer steps after which an epoch ends; None for all samples.
        accumulate: Batches per optimizer step. A window never spans two epochs, so batches that do
            not fill one are left out of their epoch: other samples in each, because each has its
            own order.

    Raises:
        ValueError: Sizes that are not positive, or more steps requested than the samples allow.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        seed: int,
        *,
        steps_per_epoch: int | None = None,
        accumulate: int = 1,
    ) -> None:
        if samples < 1 or batch_size < 1 or accumulate < 1:
            raise ValueError(
                "samples, batch_size and accumulate must be positive, "
                f"not {samples}, {batch_size}, {accumulate}"
            )
        self.samples = samples
        self.batch_size = batch_size
        self.seed = seed
        self.accumulate = accumulate
        # Rounded up: the last batch may be smaller.
        count = -(-samples // batch_size)
        # At least one, even if an epoch does not fill a window.
        available = max(1, count // accumulate)
        if steps_per_epoch is not None and not 1 <= steps_per_epoch <= available:
            raise ValueError(
                f"steps_per_epoch is {steps_per_epoch}, but {samples} samples give 1 to {available}"
            )
        self.cut_to = steps_per_epoch
        """Steps that every epoch is cut to; None for all of its samples."""
        self.steps_per_epoch = steps_per_epoch or available
        self.window = min(accumulate, count)
        """Batches of one step."""

    def permutation_of(self, epoch: int) -> torch.Tensor:
        """Return the permutation of all samples in `epoch`, shape (samples,), int64."""
        # A generator of its own: the order must not depend on what the training draws.
        generator = torch.Generator("cpu").manual_seed(mix_bits(self.seed, epoch))
        # not where torch.set_default_device puts it
        return torch.randperm(self.samples, generator=generator, device="cpu")

    def steps_in(self, epoch: int, offset: int = 0) -> int:
        """Return the optimizer steps of `epoch` from `offset` on (see `EpochPosition`)."""
        return max(0, -(-(self._limit(epoch) - offset) // self._unit)) // self.window

    def batch_numbers(self, at: EpochPosition) -> list[int]:
        """Return the numbers of the batches of an epoch that are left after ``at.done_steps``."""
        if at.steps is not None:
            steps = at.steps
        else:
            steps = self.steps_in(at.epoch, at.offset)
        # Rounded up: the last batch of an epoch may be shorter.
        batches = -(-(self._units(at.epoch) - at.offset) // self._unit)
        last = min(steps * self.window, batches)
        first = at.done_steps * self.window
        return [number for number in range(first, last) if number // self.window not in at.left_out]

    def batch_cutter(self, at: EpochPosition) -> Callable[[int], list[int]]:
        """Return a function from the number of a batch of the epoch to its samples."""
        order = self.permutation_of(at.epoch)[at.offset :]
        size = self.batch_size

        def cut(number: int) -> list[int]:
            found: list[int] = order[number * size : (number + 1) * size].tolist()
            return found

        return cut

    def size_of_batch(self, number: int, at: EpochPosition) -> int:
        """Return the number of samples in batch `number` of the epoch."""
        left = self._units(at.epoch) - at.offset - number * self.batch_size
        return max(0, min(self.batch_size, left))

    def iterate_batches(
        self, epoch: int, done_steps: int = 0, left_out: AbstractSet[int] = frozenset()
    ) -> Iterator[list[int]]:
        """Yield the batches of `epoch` that `batch_numbers` names, for a single rank."""
        at = EpochPosition(epoch, done_steps, left_out=left_out)
        cut = self.batch_cutter(at)
        for number in self.batch_numbers(at):
            yield cut(number)

    @property
    def _unit(self) -> int:
        """Samples of a batch, or 1 if offsets count batches."""
        return self.batch_size

    def _units(self, epoch: int) -> int:
        """Return how many samples, or batches of a sampler that makes them, `epoch` has."""
        return self.samples

    def _limit(self, epoch: int) -> int:
        """Return how many of the `_units` are used."""
        units = self._units(epoch)
        return min(units, (self.cut_to or units) * self.window * self._unit)

    def fixed_values(self) -> dict[str, int]:
        """Return the values that must be equal for a cursor to keep its meaning."""
        return {
            "samples": self.samples,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "accumulate": self.accumulate,
            "steps_per_epoch": self.steps_per_epoch,
        }


class SampleIndex(int):
    """The index of a sample that knows its epoch, and so the seed for making it.

    The epoch is part of the index, so that workers that outlive an epoch always know it.

    Args:
        index: The index.
        seed: Seed of the data order.
        epoch: The epoch, from 0.
    """

    def __new__(cls, index: int, seed: int, epoch: int) -> "SampleIndex":
        """Return `index` with seed and epoch."""
        made = super().__new__(cls, index)
        made._of = seed, epoch
        return made

    _of: tuple[int, int]

    @property
    def seed(self) -> int:
        """63 bits from (seed, epoch, index)."""
        return sample_seed(*self._of, int(self))

    # An index travels to a loader's workers by pickle, and has to keep its seed and epoch.
    def __reduce__(self) -> tuple[Any, ...]:
        return SampleIndex, (int(self), *self._of)


@dataclass(frozen=True)
class SampleSeeds:
    """What a loader's worker gets of a run that its data set holds: the seeds of the samples.

    Attributes:
        seed: Seed of the data order.
        epoch: The epoch, from 0, in which the worker was started.
    """

    seed: int
    epoch: int

    def sample_seed(self, index: int) -> int:
        """Return the seed of sample `index`, in its own epoch if it carries one."""
        if isinstance(index, SampleIndex):
            return index.seed
        return sample_seed(self.seed, self.epoch, index)


class BatchPlan:
    """The rest of the epoch, as a batch sampler for a `DataLoader` or a plain loop.

    The position of the run is read each time it is iterated, so that one loader serves every epoch.
    Its length is that of a whole epoch. During an iteration, and until the next epoch, its facts
    about a batch belong to that iteration.

    With several ranks each takes its slice of every batch: the order, and so the position in it,
    does not depend on their number. A batch that cannot be shared evenly is padded: the short ranks
    repeat samples of the batch, at the end of their slice, and `count_real` returns how many count.
    Then all ranks make the same number of steps of the same shape, and multiplying the mean loss
    over the real samples by `loss_share` gives the gradients of the whole batch when the ranks'
    gradients are averaged. Without padding (`pad=False`) slices differ in length and may be missing
    at the end: for ``torch.distributed.algorithms.Join``.

    Args:
        sampler: Source of the order.
        where: Returns the position of the run.
        before_first: Called when the first batch is requested. A `DataLoader` draws a random number
            when it is iterated; random state restored earlier would be one draw off.
        between: Called when a further batch is requested, with the number of batches of the epoch
            that the loop has received.
        rank: Number of this rank.
        world: How many ranks there are.
        pad: Whether all ranks get the same number of samples.

    Attributes:
        ahead: Whether a batch was requested before training on the previous ones, as loader workers
            do.
    """

    def __init__(
        self,
        sampler: EpochSampler,
        where: Callable[[], EpochPosition],
        before_first: Callable[[], Any],
        between: Callable[[int], None] = lambda number: None,
        *,
        rank: int = 0,
        world: int = 1,
        pad: bool = True,
    ) -> None:
        self._sampler = sampler
        self._where = where
        self._before_first = before_first
        self._between = between
        self._rank = rank
        self._world = world
        self._pad = pad
        self._begun = self.ahead = False
        self._set_position(where())

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, wherever in it the run is."""
        at = EpochPosition(self._where().epoch)
        return self._count_batches(self._sampler.batch_numbers(at), at)

    @property
    def batches_left(self) -> int:
        """Number of batches left, now or at the start of the epoch's iteration."""
        now = self._where()
        if now.epoch != self._at.epoch:
            self._set_position(now)
        return self._count_batches(self._numbers, self._at)

    def __iter__(self) -> Iterator[list[int]]:
        """Return an iterator of lists of sample indices, from the present position of the run.

        Raises:
            UsageError: A torch `BatchSampler` asks for them, to make batches of these batches.
        """
        # The caller's file is the only sign: torch wraps `sampler=` in a BatchSampler of its own.
        if sys._getframe(1).f_code.co_filename.endswith("torch/utils/data/sampler.py"):
            raise UsageError(
                "run.batches() gives whole batches: use DataLoader(data, "
                "batch_sampler=run.batches()), not sampler="
            )
        self._set_position(self._where())
        # Workers started in an earlier epoch know only that epoch: from the second iteration on
        # their indices carry it.
        told = self._at.seeded or self._begun
        self._begun = True
        return self._iterate_batches(self._at, self._numbers, told=told)

    def count_real(self, position: int) -> int:
        """Return how many samples of the batch at `position` of the iteration are not padding."""
        return self._rank_and_full_size(position)[0]

    def epoch_number(self, position: int) -> int:
        """Return the number in its epoch, from 0, of the batch at `position` of the iteration."""
        return self._numbers[position]

    def loss_share(self, position: int) -> float:
        """Return the factor for this rank's mean loss over the real samples of the batch at `position`."""
        mine, whole = self._rank_and_full_size(position)
        return mine * self._world / whole

    def _set_position(self, at: EpochPosition) -> None:
        self._at = at
        self._numbers = self._sampler.batch_numbers(at)[at.skip :]

    def _iterate_batches(
        self, at: EpochPosition, numbers: list[int], *, told: bool
    ) -> Iterator[list[int]]:
        epoch = at.epoch
        cut = self._sampler.batch_cutter(at)
        self._before_first()
        for asked, number in enumerate(numbers, at.skip):
            # steps that must be done by now, unless batches are prefetched
            steps = asked // self._sampler.window
            if (
                not self.ahead
                and 0 < steps <= _LOOKS
                and self._where().done_steps - at.done_steps < steps
            ):
                self.ahead = True
            if asked > at.skip:
                self._look_between(at, sys._getframe(1), asked)
            mine = self._rank_slice(cut(number))
            if mine:
                yield (
                    [SampleIndex(index, self._sampler.seed, epoch) for index in mine]
                    if told
                    else mine
                )
        self._look_between(at, sys._getframe(1), at.skip + len(numbers))

    def _look_between(self, at: EpochPosition, frame: Any, asked: int) -> None:
        """Pass on how many batches the loop has received: a loader's workers request them earlier."""
        # A DataLoader's iterator counts what it has handed over in ``_num_yielded``; a plain loop
        # has received all that it asked for.
        received = getattr(frame.f_locals.get("self"), "_num_yielded", asked - at.skip)
        self._between(at.done_steps * self._sampler.window + at.skip + received)

    def _count_batches(self, numbers: list[int], at: EpochPosition) -> int:
        if self._pad or self._world == 1:
            return len(numbers)
        return sum(self._sampler.size_of_batch(number, at) > self._rank for number in numbers)

    def _rank_and_full_size(self, position: int) -> tuple[int, int]:
        whole = self._sampler.size_of_batch(self._numbers[position], self._at)
        return len(range(self._rank, whole, self._world)), whole

    def _rank_slice(self, batch: list[int]) -> list[int]:
        if self._world == 1:
            return batch
        # Interleaved: a slice of consecutive samples would give a short batch to the last ranks
        # only.
        mine = batch[self._rank :: self._world]
        if self._pad:
            longest = -(-len(batch) // self._world)
            # Samples of this batch again, not of another one: the steps of all ranks get the same
            # shape, and the order is not touched.
            mine += batch[: longest - len(mine)]
        return mine


@contextmanager
def seeded_random_state(seed: int, *, put_back: bool = True) -> Iterator[None]:
    """Seed Python, torch (CPU) and, if imported, NumPy, for the time of a block.

    Costs about 50 µs. A generator seeded by the operating system (``numpy.random.default_rng()``
    without a seed) is not affected: give it ``torch.initial_seed()``, which is `seed` inside the
    block.

    Args:
        seed: 63 bits.
        put_back: Whether the earlier state is restored afterwards.
    """
    numpy: Any = sys.modules.get("numpy")
    if put_back:
        before = _capture_generators(numpy)
    else:
        before = None
    random.seed(seed)
    torch.default_generator.manual_seed(seed)  # not torch.manual_seed: that would seed the GPUs too
    if numpy is not None:
        # NumPy's legacy generator takes 32 bits.
        numpy.random.seed(seed & 0xFFFFFFFF)
    try:
        yield
    finally:
        if before is not None:
            random.setstate(before[0])
            torch.default_generator.set_state(before[1])
            if numpy is not None and before[2] is not None:
                numpy.random.set_state(before[2])


def _capture_generators(numpy: Any) -> tuple[Any, torch.Tensor, Any]:
    return (
        random.getstate(),
        torch.default_generator.get_state(),
        numpy.random.get_state() if numpy else None,
    )


class SeededDataset(Dataset[Any]):
    """A map-style data set whose samples are each made with their own random state.

    Use it with ``batch_sampler=run.batches()``.

    Args:
        dataset: The data set, with any random transforms.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Return the sample `index`, made with its own random state.

        Raises:
            UsageError: The index does not come from ``run.batches()``, so that it has no seed.
        """
        if not isinstance(index, SampleIndex):
            raise UsageError(
                f"index {index} has no seed: load run.seeded(dataset) with DataLoader(…, "
                "batch_sampler=run.batches())"
            )
        # In a worker nothing else draws, so restoring the state would only cost time.
        with seeded_random_state(index.seed, put_back=get_worker_info() is None):
            return self.dataset[index]


Order = Union[Iterable[Any], Callable[[int], Iterable[Any]]]
"""A torch sampler or batch sampler, or a function of the epoch that returns indices or lists of
them.
"""


class OwnOrder(EpochSampler):
    """The batches of a person's own sampler, weighted, bucketed, sequential or by a token budget.

    A sampler is iterated with the random state of (seed, epoch), so that each epoch has its own
    order and length, which a resume reproduces without stored indices. This works for a sampler
    that draws from torch's, NumPy's or Python's generators (or a `generator` of its own), from
    nothing, or from `set_epoch`; another kind is refused.

    Args:
        source: The sampler.
        batch_size: Samples in a batch if it yields single indices.
        seed: Seed of the order.
        steps_per_epoch: Optimizer steps that every epoch is cut to; None for all of its batches.
        accumulate: Batches that make one optimizer step.

    Raises:
        UsageError: It gives nothing, or not the same twice.
    """

    def __init__(
        self,
        source: Order,
        batch_size: int,
        seed: int,
        *,
        steps_per_epoch: int | None,
        accumulate: int,
    ) -> None:
        if isinstance(source, DistributedSampler):
            raise UsageError(
                "sampler is a DistributedSampler: give one of all the data, each rank takes its "
                "slice of every batch"
            )
        self._source = source
        self._order_seed = seed
        self._made: dict[int, list[Any]] = {}
        first = self._make_batches(0)
        if not any(entry != [] for entry in first):
            raise UsageError("sampler gives no sample")
        # Tried at once: a resume hours later would find it out too late.
        if self._make_batches(0) != first:
            raise UsageError(
                "sampler gives other batches when it is asked for the same epoch again: it has "
                "random state of its own, which a resume could not put back. Seed it in "
                "set_epoch(epoch), or give a function of the epoch"
            )
        self._batched = isinstance(first[0], list)
        super().__init__(
            len(first),
            1 if self._batched else batch_size,
            seed,
            steps_per_epoch=steps_per_epoch,
            accumulate=accumulate,
        )
        self.batch_size = batch_size
        batches = first
        self._digests = {}
        if self._batched:
            self.samples = sum(len(batch) for batch in first)
        else:
            self._digests["indices"] = zlib.crc32(repr(first).encode())
            batches = [first[at : at + batch_size] for at in range(0, len(first), batch_size)]
        self._digests["order"] = zlib.crc32(repr(batches).encode())

    def batch_cutter(self, at: EpochPosition) -> Callable[[int], list[int]]:
        """Return a function from the number of a batch of the epoch to its samples."""
        entries = self._of_epoch(at.epoch)[at.offset :]
        size = self.batch_size
        if self._batched:
            return entries.__getitem__
        return lambda number: entries[number * size : (number + 1) * size]

    def size_of_batch(self, number: int, at: EpochPosition) -> int:
        """Return the number of samples in batch `number` of the epoch."""
        if self._batched:
            return len(self._of_epoch(at.epoch)[at.offset + number])
        return super().size_of_batch(number, at)

    def fixed_values(self) -> dict[str, int]:
        """Return the values that must be equal for a cursor to keep its meaning.

        The order is represented by a checksum of the first epoch: of its batches, and of its
        indices if it is cut into batches here.
        """
        return {**super().fixed_values(), **self._digests}

    @property
    def _unit(self) -> int:
        if self._batched:
            return 1
        return self.batch_size

    def _units(self, epoch: int) -> int:
        return len(self._of_epoch(epoch))

    def _limit(self, epoch: int) -> int:
        """Return how many of the `_units` are used.

        Raises:
            UsageError: The epoch has fewer batches than it is to be cut to.
        """
        batches = -(-self._units(epoch) // self._unit)
        if batches < (self.cut_to or 0) * self.window:
            raise UsageError(
                f"sampler gives {batches} batches in epoch {epoch + 1}, fewer than the "
                f"{self.steps_per_epoch} steps of an epoch need: give Run(…) smaller "
                "steps_per_epoch, or none, and each epoch has its own length"
            )
        return super()._limit(epoch)

    def _of_epoch(self, epoch: int) -> list[Any]:
        """Return the indices or batches of `epoch`; those of two epochs are kept."""
        if epoch not in self._made:
            kept = {before: made for before, made in self._made.items() if before == epoch - 1}
            self._made = {**kept, epoch: self._make_batches(epoch)}
        return self._made[epoch]

    def _make_batches(self, epoch: int) -> list[Any]:
        seed = mix_bits(self._order_seed, epoch)
        with seeded_random_state(seed):
            for part in _nested_samplers(self._source):
                if isinstance(getattr(part, "generator", None), torch.Generator):
                    part.generator.manual_seed(seed)
                if hasattr(part, "set_epoch"):
                    part.set_epoch(epoch)
            if callable(self._source):
                given = self._source(epoch)
            else:
                given = self._source
            drawn = [_plain_indices(entry) for entry in given]
        if len({type(entry) for entry in drawn}) > 1:
            raise UsageError("sampler gives both indices and lists of them")
        return drawn


def _nested_samplers(source: Any) -> Iterator[Any]:
    """Yield a sampler and the samplers inside it."""
    while source is not None:
        yield source
        source = getattr(source, "batch_sampler", None) or getattr(source, "sampler", None)


def _plain_indices(entry: Any) -> int | list[int]:
    if isinstance(entry, (list, tuple)) or bool(getattr(entry, "ndim", 0)):
        return [int(index) for index in entry]
    try:
        return int(entry)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"sampler gives {entry!r:.80}, neither an index nor a list of them"
        ) from error


def build_order(
    sampler: Order | None,
    samples: int,
    batch_size: int,
    seed: int,
    steps_per_epoch: int | None,
    accumulate: int,
    max_steps: int | None,
) -> EpochSampler:
    """Return the order of the data from the arguments of `Run`; without data, empty steps.

    Raises:
        UsageError: They make no order.
    """
    if sampler is not None and samples:
        raise UsageError(
            "give samples or sampler, not both: a sampler says itself how many there are"
        )
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
            return OwnOrder(
                sampler, batch_size, seed, steps_per_epoch=steps_per_epoch, accumulate=accumulate
            )
        return EpochSampler(
            samples, batch_size, seed, steps_per_epoch=steps_per_epoch, accumulate=accumulate
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def total_lengths(
    epochs: int | None, max_steps: int | None, steps_per_epoch: int
) -> "tuple[int, int]":
    """Return the total numbers of epochs and steps of a run.

    Raises:
        UsageError: Neither is given, or one is not positive.
    """
    for name, value in (("epochs", epochs), ("max_steps", max_steps)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            raise UsageError(f"{name} is {value!r}: it must be a whole number, at least 1")
    if epochs is None and max_steps is None:
        raise UsageError("give Run(…) epochs, max_steps, or both")
    if max_steps is not None:
        most = max_steps
    else:
        most = (epochs or 1) * steps_per_epoch
    whole = -(-most // steps_per_epoch)
    if epochs is not None:
        whole = min(epochs, whole)
    return whole, min(most, whole * steps_per_epoch)
