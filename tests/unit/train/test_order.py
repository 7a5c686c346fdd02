"""Which sample comes when: shared between ranks, padded, after a change of their number."""

from __future__ import annotations

import itertools
import pickle

import pytest
import torch
from rgt_train import UsageError
from rgt_train.data.sampler import (
    BatchPlan,
    EpochPosition,
    EpochSampler,
    SampleIndex,
    SeededDataset,
    sample_seed,
    seeded_random_state,
)


def plan(
    sampler: EpochSampler,
    done: int,
    rank: int,
    world: int,
    *,
    pad: bool = True,
    seeded: bool = False,
) -> BatchPlan:
    at = EpochPosition(1, done, seeded=seeded)
    return BatchPlan(sampler, lambda: at, lambda: None, rank=rank, world=world, pad=pad)


def seen(sampler: EpochSampler, done: int, world: int) -> list[list[int]]:
    """Return the real samples of each batch that is left, over all ranks."""
    plans = [plan(sampler, done, rank, world) for rank in range(world)]
    slices = [[batch[: p.count_real(n)] for n, batch in enumerate(p)] for p in plans]
    return [[i for part in parts for i in part] for parts in zip(*slices, strict=True)]


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_the_ranks_together_see_each_batch(world: int) -> None:
    sampler = EpochSampler(101, 8, seed=3)
    whole = list(sampler.iterate_batches(1))
    assert [sorted(batch) for batch in seen(sampler, 0, world)] == [
        sorted(batch) for batch in whole
    ]


def test_every_sample_once_through_changes_of_the_world_size() -> None:
    sampler = EpochSampler(103, 8, seed=5)
    for worlds in itertools.permutations((1, 2, 3, 4), 3):
        batches = []
        for (begin, end), world in zip(((0, 4), (4, 9), (9, 13)), worlds, strict=True):
            batches += seen(sampler, begin, world)[: end - begin]
        assert sorted(i for batch in batches for i in batch) == list(range(103))


def test_padding_makes_ranks_equal_and_repeats_samples_of_the_batch() -> None:
    sampler = EpochSampler(10, 4, seed=1)  # the last batch has two samples, for three ranks
    slices = [list(plan(sampler, 0, rank, 3)) for rank in range(3)]
    assert [[len(batch) for batch in one] for one in slices] == [[2, 2, 1]] * 3
    last = list(sampler.iterate_batches(1))[-1]
    assert {one[-1][0] for one in slices} == set(last)
    assert [plan(sampler, 0, rank, 3).count_real(2) for rank in range(3)] == [1, 1, 0]
    assert {len(plan(sampler, 0, rank, 3)) for rank in range(3)} == {3}


def test_without_padding_ranks_are_uneven_and_end_early() -> None:
    sampler = EpochSampler(10, 4, seed=1)
    plans = [plan(sampler, 0, rank, 3, pad=False) for rank in range(3)]
    assert [[len(batch) for batch in one] for one in plans] == [[2, 2, 1], [1, 1, 1], [1, 1]]
    assert [len(one) for one in plans] == [3, 3, 2]


def test_the_share_gives_the_gradient_of_the_whole_batch() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(10, 3), torch.randn(10, 1)
    sampler, world = EpochSampler(10, 4, seed=1), 3
    model = torch.nn.Linear(3, 1)

    def gradient(indices: list[int], real: int, factor: float) -> torch.Tensor:
        model.zero_grad()
        losses = ((model(x[indices]) - y[indices]) ** 2).flatten()[:real]
        (losses.sum() / max(1, real) * factor).backward()
        assert model.weight.grad is not None
        return model.weight.grad.clone()

    for position, batch in enumerate(sampler.iterate_batches(1)):
        whole = gradient(batch, len(batch), 1.0)
        ranks = [plan(sampler, 0, rank, world) for rank in range(world)]
        parts = [
            gradient(list(one)[position], one.count_real(position), one.loss_share(position))
            for one in ranks
        ]
        torch.testing.assert_close(torch.stack(parts).mean(dim=0), whole)


def test_left_out_steps_are_in_no_batch() -> None:
    sampler = EpochSampler(48, 4, seed=2, accumulate=2)
    whole = list(sampler.iterate_batches(1))
    left = BatchPlan(sampler, lambda: EpochPosition(1, 1, left_out={0, 2, 5, 77}), lambda: None)
    assert list(left) == [whole[n] for n in (2, 3, 6, 7, 8, 9)]
    assert left.batches_left == 6


class TestSeeded:
    def test_the_seed_travels_with_the_index(self) -> None:
        index = pickle.loads(pickle.dumps(SampleIndex(7, 3, 1)))
        assert (index, index.seed, type(index)) == (7, sample_seed(3, 1, 7), SampleIndex)
        batch = next(iter(plan(EpochSampler(9, 4, seed=3), 0, 0, 1, seeded=True)))
        assert [getattr(i, "seed", None) for i in batch] == [sample_seed(3, 1, i) for i in batch]
        assert torch.arange(20)[batch].tolist() == batch

    def test_a_plain_index_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"batch_sampler=run\.batches\(\)"):
            SeededDataset(list(range(5)))[2]

    def test_the_state_outside_is_left_alone(self) -> None:
        import random

        import numpy as np

        def draws() -> tuple[float, float, float]:
            return random.random(), float(torch.rand(())), float(np.random.rand())

        before = random.getstate(), torch.get_rng_state(), np.random.get_state()
        with seeded_random_state(5):
            inside = draws()
        assert random.getstate() == before[0]
        assert torch.equal(torch.get_rng_state(), before[1])
        assert (np.random.get_state()[1] == before[2][1]).all()  # type: ignore[index]
        with seeded_random_state(5):
            assert draws() == inside
        with seeded_random_state(6):
            assert draws() != inside
