"""A person's own sampler, an end after so many steps, and a loop without data: each goes on exactly after a kill."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import Options, Run, UsageError
from rgt_train.data.sampler import BatchPlan, EpochPosition, OwnOrder, build_order
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from tests.process.train.harness import Zygote, events, losses
from tests.process.train.test_forgotten import made

SCRIPT = """
import json, os, signal
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler, BatchSampler, RandomSampler
from rgt_train import Options, Run

def budget(epoch):
    "Batches of at most 12 tokens, the samples in an order of the epoch."
    lengths = [1 + index % 6 for index in range(24)]
    batch = []
    for index in torch.randperm(24).tolist():
        if batch and sum(lengths[i] for i in batch) + lengths[index] > 12:
            yield batch
            batch = []
        batch.append(index)

torch.manual_seed(3)
data = TensorDataset(torch.randn(24, 4), torch.arange(24))
model = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Dropout(0.2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
run = Run("run", model=model, optimizer=optimizer, batch_size=4, sampler=SAMPLER, max_steps=15, steps_per_epoch=6,
          options=Options(save_every=1))
with run:
    for epoch in run.epochs():
        for batch, indices in DataLoader(data, batch_sampler=run.batches()):
            loss = model(batch).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            with open("seen.jsonl", "a") as seen:
                seen.write(json.dumps([epoch, run.step_now, indices.tolist()]) + "\\n")
            run.step(loss)
            if run.step_now == int(os.environ.get("KILL_AT", 0)):
                os.kill(os.getpid(), signal.SIGKILL)
"""
SAMPLERS = {
    "weighted": "WeightedRandomSampler([1.0 + i for i in range(24)], 24)",
    "generator": "BatchSampler(RandomSampler(data, generator=torch.Generator().manual_seed(5)), 4, drop_last=False)",
    "budget": "budget",
}


def seen(place: Path) -> dict[int, Any]:
    lines = [json.loads(line) for line in (place / "seen.jsonl").read_text().splitlines()]
    by_step: dict[int, Any] = {}
    for epoch, step, indices in lines:
        assert by_step.setdefault(step, [epoch, indices]) == [epoch, indices], (
            "the same batch again"
        )
    return by_step


@pytest.mark.parametrize("kind", list(SAMPLERS))
def test_an_order_of_ones_own_goes_on_after_kills(
    trainers: Zygote, tmp_path: Path, kind: str
) -> None:
    places = tmp_path / "plain", tmp_path / "killed"
    for place in places:
        place.mkdir()
        (place / "train.py").write_text(SCRIPT.replace(
            "sampler=SAMPLER", f"sampler={SAMPLERS[kind]}"))  # fmt: skip
    plain, killed = (place / "train.py" for place in places)
    for at in ("4", "8", "14"):
        cut = trainers.launch_script(killed, env={"KILL_AT": at})
        assert cut.wait() == -signal.SIGKILL, cut.text()
    for path in (plain, killed, killed):
        trainer = trainers.launch_script(path)
        assert trainer.wait() == 0, trainer.text()
    assert "already finished: step 15" in trainer.text()
    assert seen(places[0]) == seen(places[1])
    assert sorted(seen(places[0])) == list(range(15))
    assert losses(places[0] / "run") == losses(places[1] / "run")
    first, second = (
        [batch for epoch, batch in seen(places[0]).values() if epoch == number] for number in (0, 1)
    )
    assert first != second, "each epoch has an order of its own"


def batches(
    order: OwnOrder, epoch: int, done: int = 0, rank: int = 0, world: int = 1
) -> list[list[int]]:
    return list(
        BatchPlan(
            order,
            lambda: EpochPosition(epoch, done),
            lambda: None,
            rank=rank,
            world=world,
            pad=False,
        )
    )


def test_a_sequential_order_is_cut_and_shared() -> None:
    order = OwnOrder(SequentialSampler(range(7)), 3, 0, steps_per_epoch=None, accumulate=1)
    assert batches(order, 5) == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches(order, 5, done=2) == [[6]]
    assert [batches(order, 0, rank=rank, world=2) for rank in (0, 1)] == [
        [[0, 2], [3, 5], [6]],
        [[1], [4]],
    ]
    assert order.fixed_values()["samples"] == 7
    assert order.fixed_values()["batch_size"] == 3


def test_the_generators_of_the_training_are_left_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state(), random.getstate()
    order = OwnOrder(RandomSampler(range(9)), 2, 0, steps_per_epoch=None, accumulate=1)
    assert batches(order, 0) != batches(order, 1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()


class Moody:
    """Keeps random state where nobody reaches it."""

    def __init__(self) -> None:
        self._own = random.Random(3)

    def __iter__(self) -> Iterator[int]:
        return iter(self._own.sample(range(30), 30))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"sampler": Moody()}, "sampler gives other batches when it is asked for the same epoch again"),
        ({"sampler": []}, "sampler gives no sample"),
        ({"sampler": ["a"]}, "sampler gives 'a', neither an index nor a list of them"),
        ({"sampler": [1, [2]]}, "sampler gives both indices and lists"),
        ({"sampler": [1], "samples": 3}, "give samples or sampler, not both"),
        ({"sampler": DistributedSampler(TensorDataset(torch.zeros(4)), 2, 0)}, "sampler is a DistributedSampler"),
        ({"sampler": [1, 2], "steps_per_epoch": 3}, "steps_per_epoch is 3, but"),
        ({"sampler": [1], "epochs": None}, "epochs, max_steps, or both"),
        ({"sampler": [1], "max_steps": 0}, "max_steps is 0: "),
        ({"samples": 0}, "samples is 0: "),
    ],
)  # fmt: skip
def test_what_is_no_order_is_refused(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    with pytest.raises(SystemExit, match=told) as ended:
        made(tmp_path / "run", **{"samples": 0, **given})
    assert ended.value.code == 2


def test_an_epoch_that_gives_fewer_than_planned_says_so(tmp_path: Path) -> None:
    run = made(tmp_path, samples=0, sampler=lambda epoch: range(4 - epoch), steps_per_epoch=4)
    with (
        pytest.raises(
            UsageError, match=r"3 batches in epoch 2, fewer than the 4 .*or none, and each"
        ),
        run,
    ):
        for _epoch in run.epochs():
            for _batch in run.batches():
                run.step(1.0)


LENGTHS = {
    "grows": [1, 4, 2],
    "shrinks": [4, 2, 1],
    "ends": [2, 2, 0],
}


def steps_of(
    out: Path, kind: str, last: int = 99, **given: Any
) -> tuple[list[tuple[int, list[int]]], Run]:
    """Train on an order whose epochs differ in length up to step `last`; return epoch and batch of each step."""
    seen = []
    facts = {"samples": 0, "sampler": lambda epoch: range(LENGTHS[kind][epoch % 3]), "epochs": 3}
    with made(out, options=Options(save_every=1, background=False), **{**facts, **given}) as run:
        for epoch in run.epochs():
            for batch in run.batches():
                seen.append((epoch, batch))
                run.step(1.0)
                if run.step_now == last:
                    return seen, run
    return seen, run


@pytest.mark.parametrize("kind", list(LENGTHS))
@pytest.mark.parametrize("most", [None, 5])
def test_each_epoch_has_its_own_length(tmp_path: Path, kind: str, most: int | None) -> None:
    given: dict[str, Any] = {} if most is None else {"max_steps": most, "epochs": None}
    whole = [(epoch, [n]) for epoch, count in enumerate(LENGTHS[kind]) for n in range(count)]
    wanted = whole
    if most is not None:
        wanted = [*whole, *((3, [n]) for n in range(LENGTHS[kind][0]))][:most]
    seen, run = steps_of(tmp_path / "whole", kind, **given)
    assert (seen, run.finished) == (wanted, True)
    for last in range(1, len(wanted)):
        first, _ = steps_of(tmp_path / str(last), kind, last, **given)
        rest, run = steps_of(tmp_path / str(last), kind, **given)
        assert (first + rest, run.finished) == (wanted, True)
    assert steps_of(tmp_path / "whole", kind, **given)[0] == [], "finished"


def test_the_receipt_counts_the_steps_of_the_epochs_that_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps_of(tmp_path, "grows", last=4)
    steps_of(tmp_path, "grows", last=5)
    assert "resume: at step 4 of 9 " in capsys.readouterr().out
    more, run = steps_of(tmp_path, "grows", epochs=4)
    assert (len(more), run.finished) == (3, True)


def samples_of(out: Path, last: int = 99, stop_at: int = -1, **given: Any) -> list[list[int]]:
    """Train up to step `last`, or stop in the middle of the next; return the batches."""
    seen = []
    facts = {
        "samples": 24,
        "batch_size": 4,
        "epochs": 2,
        "options": Options(save_every=1, background=False),
    }
    with made(out, **{**facts, **given}) as run:
        for _epoch in run.epochs():
            for batch in run.batches():
                seen.append([int(index) for index in batch])
                if run.step_now == stop_at and run.progress.micro:
                    signal.raise_signal(signal.SIGTERM)
                if run.micro():
                    run.step(1.0)
                    if run.step_now == last:
                        return seen
    return seen


ORDERS: dict[str, dict[str, Any]] = {
    "shuffled": {},
    "indices": {"samples": 0, "sampler": RandomSampler(range(24))},
}


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"batch_size": 2}),
        ({}, {"batch_size": 8}),
        ({}, {"batch_size": 2, "accumulate": 2}),
        ({"accumulate": 2}, {}),
        ({"batch_size": 2, "accumulate": 2}, {"batch_size": 2, "accumulate": 4}),
    ],
)
def test_another_batch_size_goes_on_with_the_same_samples(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    order: str,
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    def flat(batches: list[list[int]]) -> list[int]:
        return [index for batch in batches for index in batch]

    same = flat(samples_of(tmp_path / "same", **ORDERS[order]))
    first = samples_of(tmp_path / "run", 2, **{**ORDERS[order], **before})
    capsys.readouterr()
    second = samples_of(tmp_path / "run", 3, **{**ORDERS[order], **after})
    told = capsys.readouterr().out
    assert re.search("bits may differ from the uninterrupted run: .*(batch_size|accumulate) ", told)
    third = samples_of(tmp_path / "run", **{**ORDERS[order], **after})
    assert "the same bits as far as given" in capsys.readouterr().out
    assert len(second[0]) == after.get("batch_size", 4)
    whole = flat(first + second + third)
    assert whole[:24] == same[:24]
    assert sorted(whole[24:]) == sorted(same[24:]) or "accumulate" in after


def test_the_batches_of_an_unfinished_step_are_done_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        samples_of(tmp_path, stop_at=1, accumulate=3)
    same = samples_of(tmp_path / "same")
    assert samples_of(tmp_path, batch_size=4) == same[3:], "from the fourth batch on"
    assert "2 batches of an unfinished step are done again" in capsys.readouterr().out


def test_a_sampler_of_batches_goes_on_with_another_accumulation_alone(tmp_path: Path) -> None:
    def kept(size: int) -> dict[str, Any]:
        return {
            "samples": 0,
            "sampler": BatchSampler(range(24), size, drop_last=False),
            "batch_size": 1,
        }

    same = samples_of(tmp_path / "same", **kept(4))
    first = samples_of(tmp_path / "run", 2, **kept(4))
    with pytest.raises(UsageError, match=r"other data settings: .*order"):
        samples_of(tmp_path / "run", **kept(6))
    assert first + samples_of(tmp_path / "run", accumulate=2, **kept(4)) == same


def test_a_loop_without_data_and_a_stream_go_on_with_other_sizes(tmp_path: Path) -> None:
    made(tmp_path / "none", samples=0, steps_per_epoch=3).close()
    with made(tmp_path / "none", samples=0, steps_per_epoch=3) as run:
        for _epoch in run.epochs():
            for _step in run.steps():
                run.step(1.0)
                break
            break
    assert counted(tmp_path / "none", steps_per_epoch=4)[1] == [1, 2, 3, 4, 5, 6, 7]
    seen = []
    for accumulate, last in ((1, 2), (2, 99)):
        stream = list(range(8))
        with made(tmp_path / "run", samples=0, stream=stream, accumulate=accumulate) as run:
            for _epoch in run.epochs():
                for batch in run.stream():
                    seen.append(batch)
                    if run.micro():
                        run.step(1.0)
                    if run.step_now == last:
                        break
                if run.step_now == last:
                    break
    assert seen == [*range(8), *range(8)]


def test_another_order_is_refused_at_the_resume(tmp_path: Path) -> None:
    weights = [1.0] * 4
    for last in (False, True):
        made_of = BatchSampler(WeightedRandomSampler(weights, 4), 2, drop_last=False)
        if last:
            weights[0] = 50.0
            made_of = BatchSampler(WeightedRandomSampler(weights, 4), 2, drop_last=False)
            with pytest.raises(UsageError, match=r"other data settings: .*order"):
                made(tmp_path, samples=0, sampler=made_of)
            break
        with made(tmp_path, samples=0, sampler=made_of) as run:
            for _epoch in run.epochs():
                for _batch in run.batches():
                    run.step(1.0)
                    break
                break


def counted(out: Path, **given: Any) -> tuple[Run, list[int]]:
    """Train without data; return the run and the steps."""
    steps = []
    with made(out, samples=0, **given) as run:
        for _epoch in run.epochs():
            for step in run.steps():
                steps.append(step)
                run.step(1.0)
    return run, steps


def test_a_loop_without_data_counts_its_steps(tmp_path: Path) -> None:
    run, steps = counted(tmp_path / "both", steps_per_epoch=3)
    assert (steps, run.finished) == (list(range(6)), True)
    run, steps = counted(tmp_path / "alone", epochs=None, max_steps=5)
    assert (steps, run.finished) == (list(range(5)), True)
    whole = build_order(None, 0, 2, seed=0, steps_per_epoch=None, accumulate=3, max_steps=5)
    assert whole.steps_per_epoch == 5  # the whole of it is one epoch
    with (
        pytest.raises(UsageError, match=r"run\.step was not called"),
        made(tmp_path / "no", samples=0, max_steps=5) as run,
    ):
        for _epoch in run.epochs():
            list(run.steps())


def test_more_steps_go_on_in_the_middle_of_the_epoch(tmp_path: Path) -> None:
    """A run that ended within its third epoch goes on there, also after it was finished."""
    seen: list[tuple[int, int]] = []
    for most in (7, 7, 11, 12):
        with made(tmp_path, samples=3, epochs=None, max_steps=most) as run:
            for epoch in run.epochs():
                for _batch in run.batches():
                    seen.append((epoch, run.step_now))
                    run.step(1.0)
        assert run.finished
        assert run.step_now == most
    assert seen == [(step // 3, step) for step in range(12)]
    assert [event["step"] for event in events(tmp_path, "done")] == [7, 11, 12]


def test_the_fewer_of_epochs_and_steps_ends_the_run(tmp_path: Path) -> None:
    assert made(tmp_path / "a", epochs=2, max_steps=50).total_steps == 8
    assert made(tmp_path / "b", epochs=9, max_steps=6).total_steps == 6
