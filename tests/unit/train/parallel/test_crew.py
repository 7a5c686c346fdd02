"""One leads, the others follow: with threads for ranks, so that every turn can be tried."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rgt_train import exits
from rgt_train.checkpoint import CheckpointDamaged
from rgt_train.exits import RanksError
from rgt_train.ranks import choose, replicated
from rgt_train.ranks.launch import (
    Coordinator,
    SingleRank,
    StateNotTaken,
    is_everywhere,
    mark_everywhere,
    run_on_all_ranks,
)


class Threads:
    """Ranks that are threads, with as much of the communication as a crew needs."""

    nodes = 1

    def __init__(self, rank: int, world: int, place: dict[str, Any]) -> None:
        self.rank, self.world, self._place = rank, world, place
        self.is_writer = rank == 0

    def share_from_writer(self, value: Any) -> Any:
        barrier: threading.Barrier = self._place["barrier"]
        if self.is_writer:
            self._place["value"] = value
        barrier.wait(60)
        found = self._place["value"]
        barrier.wait(60)
        return found

    def agree_on_flags(self, wishes: int) -> int:
        found: int = functools.reduce(operator.or_, self.all_gather(wishes))
        return found

    def all_gather(self, value: Any) -> list[Any]:
        barrier: threading.Barrier = self._place["barrier"]
        self._place[f"of {self.rank}"] = value
        barrier.wait(60)
        found = [self._place[f"of {rank}"] for rank in range(self.world)]
        barrier.wait(60)
        return found


def together(
    world: int, work: Callable[[Coordinator, list[Any]], Any]
) -> list[tuple[Any, list[Any]]]:
    """Run `work` on every rank; return by rank what it returned or raised, and the orders it carried out."""
    place: dict[str, Any] = {"barrier": threading.Barrier(world)}
    found: list[Any] = [None] * world

    def one(rank: int) -> None:
        ranks: Any = Threads(rank, world, place)
        crew, orders = Coordinator(ranks), []
        crew.orders["note"] = lambda value: orders.append((rank, value))
        try:
            found[rank] = work(crew, orders), orders
        except BaseException as error:
            found[rank] = error, orders

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_orders_reach_every_rank_and_the_result_too() -> None:
    def lead(crew: Coordinator) -> str:
        for value in ("a", "b"):
            crew.order_all("note", value)
        return crew.run_on_leader(lambda: "inside")

    found = together(3, lambda crew, _: crew.run_on_leader(lambda: lead(crew)))
    assert [result for result, _ in found] == ["inside"] * 3
    assert [orders for _, orders in found] == [[(rank, "a"), (rank, "b")] for rank in range(3)]


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (exits.UsageError("no such thing"), exits.UsageError, "no such thing"),
        (exits.TrainingStop(74, "mirror"), exits.TrainingStop, "74"),
        (ValueError("x"), RanksError, "rank 0 failed: ValueError: x"),
    ],
)
def test_what_the_leader_raises_is_raised_by_all(
    error: BaseException, kind: type, text: str
) -> None:
    def fail() -> None:
        raise error

    found = together(2, lambda crew, _: crew.run_on_leader(fail))
    assert found[0][0] is error
    assert type(found[1][0]) is kind
    assert text in str(found[1][0])


def test_what_all_raise_by_themselves_is_not_told_again() -> None:
    def order(crew: Coordinator) -> None:
        crew.orders["fail"] = fail
        crew.run_on_leader(lambda: crew.order_all("fail"))

    def fail() -> None:
        raise mark_everywhere(exits.TrainingStop(1, "out of step"))

    assert [str(error) for error, _ in together(2, lambda crew, _: order(crew))] == ["1", "1"]


def test_a_leader_that_waits_is_heard_and_hears_of_a_signal_to_another_rank() -> None:
    def lead(crew: Coordinator, orders: list[Any]) -> Any:
        crew.heard = lambda: orders.append("heard")

        def wait() -> list[bool]:
            first = crew.signal_alive()
            crew.order_all("note", "now")
            return [first, crew.signal_alive()]

        crew.asked = lambda: crew._ranks.rank == 2 and (2, "now") in orders
        return crew.run_on_leader(wait)

    for rank, (result, orders) in enumerate(together(3, lead)):
        assert result == [False, True], "a signal to rank 2 reaches the one that waits"
        assert orders.count("heard") == (2 if rank == 0 else 4), "each order is a sign of life"


class Slow:
    """A save that takes so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks, self.busy = looks, True

    def poll_outcome(self) -> Any:
        self.looks -= 1
        self.busy = self.looks > 0
        return None if self.busy else "saved"

    def wait(self) -> Any:
        return "waited"


def test_a_long_save_lets_the_others_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "_HEARD_S", 0.0)

    def lead(crew: Coordinator, orders: list[Any]) -> Any:
        crew.heard = lambda: orders.append("heard")
        slow: Any = Slow(4)
        return crew.run_on_leader(replicated.OrderedPersister(slow, crew).wait)

    (result, led), (_, heard) = together(2, lead)
    assert (result, led.count("heard"), heard.count("heard")) == ("saved", 3, 4)
    slow: Any = Slow(4)
    alone: Any = replicated.OrderedPersister(slow, Coordinator(SingleRank())).wait()
    assert alone == "waited", "nobody listens"


def test_alone_it_is_a_plain_call() -> None:
    crew = Coordinator(SingleRank())
    assert crew.run_on_leader(lambda: crew.order_all("alive")) is False
    assert not crew.signal_alive()
    crew.asked = lambda: True
    assert crew.signal_alive()


def test_the_ranks_are_judged_by_name_and_shard() -> None:
    same = (3, {"w": 1, "v@0": 5})
    assert (
        replicated.describe_differences([same, (3, {"w": 1, "v@1": 7}), (3, {"w": 1, "v@0": 5})])
        == []
    )
    assert replicated.describe_differences(
        [same, (3, {"w": 1, "v@1": 7}), (3, {"w": 1, "v@0": 6})]
    ) == ["rank 2 has other bits than rank 0 in v@0"]
    assert replicated.describe_differences([same, (4, {"w": 1})]) == [
        "rank 1 is at step 4, rank 0 at step 3"
    ]
    assert replicated.describe_differences([same, (3, {"u": 1})]) == [
        "rank 1 and rank 0 do not have the same tensors: u and 1 more"
    ]


def test_averages_of_weights_are_judged_and_those_of_statistics_are_not() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    average = torch.optim.swa_utils.AveragedModel(model)
    found = replicated.fingerprint_state({"model": model}, {}, {"ema": average})
    names = {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert set(found) == {f"{part}/{name}" for part in ("model", "ema") for name in names}
    next(average.parameters()).data[0, 0] += 1
    drifted = replicated.fingerprint_state({"model": model}, {}, {"ema": average})
    assert replicated.describe_differences([(3, found), (3, drifted)]) == [
        "rank 1 has other bits than rank 0 in ema/0.weight"
    ]


class Engine:
    """What the adapter asks of a DeepSpeed engine (runtime/engine.py of DeepSpeed 0.19)."""

    lr_scheduler = None

    def __init__(self, stage: int) -> None:
        self.module = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.module.parameters())
        self._stage = stage

    def zero_optimization_stage(self) -> int:
        return self._stage


def test_a_deepspeed_engine_gives_its_parts_or_says_why_not() -> None:
    engine = Engine(0)
    assert choose.of_deepspeed(engine) == {"model": engine.module, "optimizer": engine.optimizer}
    with pytest.raises(exits.UsageError, match="ZeRO stage 2"):
        choose.of_deepspeed(Engine(2))


def test_what_one_rank_finds_wrong_every_rank_gets_to_know() -> None:
    expected: list[tuple[Exception, type[BaseException], type[BaseException], bool]] = [
        (CheckpointDamaged("bad byte"), CheckpointDamaged, CheckpointDamaged, False),
        (StateNotTaken("no place"), StateNotTaken, StateNotTaken, False),
        (exits.UsageError("foreign"), exits.UsageError, exits.UsageError, True),
        (KeyError("model"), RanksError, KeyError, True),
    ]
    for error, told, own, ends in expected:
        found = together(3, functools.partial(in_agreement, error))
        errors = [result for result, _ in found]
        assert [type(each) for each in errors] == [told, own, told]
        assert all("rank 1" in str(each) for each in errors if each is not error)
        assert [is_everywhere(each) for each in errors] == [ends] * 3
    assert [
        result
        for result, _ in together(2, lambda crew, _: run_on_all_ranks(crew._ranks, lambda: 7))
    ] == [7, 7]


def in_agreement(error: Exception, crew: Coordinator, orders: list[Any]) -> None:
    def fail_on_one() -> None:
        if crew._ranks.rank == 1:
            raise error

    run_on_all_ranks(crew._ranks, fail_on_one)
