"""Random transforms that give the same bits after a resume, for any number of loader workers.

The random state of loader workers cannot be saved: they run ahead of the training, and another number of them would
draw other numbers. So every sample gets random state of its own, from (seed, epoch, sample id), for as long as it is
being made.
"""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from typing import Any, Iterator, Tuple

import torch
from torch.utils.data import Dataset, get_worker_info

from rgt_train.sampler import SampleIndex


@contextmanager
def random_state_of(seed: int, *, put_back: bool = True) -> Iterator[None]:
    """Seed Python, torch (CPU) and, where it is imported, NumPy, for the time of a block.

    Costs some 50 µs. A generator that draws from the operating system (``numpy.random.default_rng()`` without a seed)
    is out of reach: give it ``torch.initial_seed()``, which is `seed` inside the block.

    Args:
        seed: 63 bits.
        put_back: Whether the former state comes back afterwards.
    """
    numpy: Any = sys.modules.get("numpy")
    before = _capture(numpy) if put_back else None
    random.seed(seed)
    torch.default_generator.manual_seed(seed)  # not torch.manual_seed: that would seed the GPUs too
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    try:
        yield
    finally:
        if before is not None:
            random.setstate(before[0])
            torch.default_generator.set_state(before[1])
            if numpy is not None and before[2] is not None:
                numpy.random.set_state(before[2])


def _capture(numpy: Any) -> Tuple[Any, torch.Tensor, Any]:
    return random.getstate(), torch.default_generator.get_state(), numpy.random.get_state() if numpy else None


class Seeded(Dataset[Any]):
    """A map-style data set of which every sample is made with its own random state.

    Feed it by ``batch_sampler=run.batches()``.

    Args:
        dataset: The data set, with whatever random transforms it has.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Return the sample `index`, made with its own random state.

        Raises:
            TypeError: The index does not come from ``run.batches()``, so that it has no seed.
        """
        if not isinstance(index, SampleIndex):
            raise TypeError(
                f"index {index} has no seed: load run.seeded(dataset) with DataLoader(…, batch_sampler=run.batches())"
            )
        with random_state_of(index.seed, put_back=get_worker_info() is None):
            return self.dataset[index]
