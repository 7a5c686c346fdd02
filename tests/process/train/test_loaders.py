"""Data loading killed in the middle of an epoch: random transforms, worker processes, streams; bits compared."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import Options, Run, UsageError
from rgt_train.data.position import Stream

from tests.process.train.harness import Zygote, assert_same, final_state, losses

HEAD = '''
import os, random, sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from rgt_train import Options, Run

torch.manual_seed(1); random.seed(1); np.random.seed(1)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)

class Transform:
    """As torchvision's do: draws from all the global generators."""
    def __call__(self, x):
        if random.random() < 0.5: x = x.flip(0)
        x = x * float(np.random.uniform(0.5, 1.5))
        return x + 0.1 * torch.randn(6)
'''

MAPPED = (
    HEAD
    + """
class Images(Dataset):
    def __len__(self): return 60
    def __getitem__(self, index): return Transform()(torch.arange(6.0) * index / 300)

run = Run("run", model=model, optimizer=optimizer, samples=60, batch_size=4, epochs=2, seed=3,
          options=Options(save_every=2))
data = run.seeded(Images())
with run:
    for epoch in run.epochs():
        for batch in DataLoader(data, batch_sampler=run.batches(), num_workers=WORKERS):
            loss = ((model(batch) - 1) ** 2).mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            run.step(loss.item())
"""
)

STREAMED = (
    HEAD
    + """
class Images(Dataset):
    def __len__(self): return 60
    def __getitem__(self, index): return Transform()(torch.arange(6.0) * index / 300)

run = Run("run", model=model, optimizer=optimizer, stream=LOADER, steps_per_epoch=11, epochs=3,
          options=Options(save_every=2))
with run:
    for epoch in run.epochs():
        for batch in run.stream():
            loss = ((model(batch) - 1) ** 2).mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            run.step(loss.item())
"""
)


def script(place: Path, text: str, die_at: int | None = None) -> Path:
    place.mkdir(exist_ok=True)
    call = "run.step(loss.item())"
    assert text.count(call) == 1
    if die_at is not None:
        text = text.replace(call, f"{call}; run.step_now == {die_at} and os.kill(os.getpid(), 9)")
    path = place / ("dying.py" if die_at is not None else "train.py")
    path.write_text(text)
    return path


def finish(trainers: Zygote, path: Path) -> str:
    trainer = trainers.launch_script(path)
    assert trainer.wait() == 0, trainer.text()
    return trainer.text()


def die(trainers: Zygote, path: Path) -> None:
    trainer = trainers.launch_script(path)
    assert trainer.wait() == -signal.SIGKILL, trainer.text()


def assert_equal_runs(left: Path, right: Path, steps: int) -> None:
    assert losses(left) == losses(right)
    assert all(isinstance(loss, float) for loss in losses(left).values()), "they diverged"
    for a, b in zip(final_state(left, steps), final_state(right, steps), strict=True):
        for state in (a, b):
            if "objects" in state:
                state["objects"].pop("stream", None)
        assert_same(a, b)


@pytest.fixture(scope="module")
def uninterrupted(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("uninterrupted")
    finish(trainers, script(place, MAPPED.replace("WORKERS", "0")))
    return place / "run"


@pytest.mark.parametrize("workers", [0, 2, pytest.param(8, marks=pytest.mark.full)])
def test_random_transforms_mid_epoch(
    trainers: Zygote, tmp_path: Path, uninterrupted: Path, workers: int
) -> None:
    """Killed twice in the middle of an epoch, with other numbers of workers: the bits of a run without workers."""
    text = MAPPED
    die(trainers, script(tmp_path, text.replace("WORKERS", str(workers)), die_at=5))
    die(trainers, script(tmp_path, text.replace("WORKERS", "2"), die_at=21))
    finish(trainers, script(tmp_path, text.replace("WORKERS", str(workers))))
    assert_equal_runs(tmp_path / "run", uninterrupted, 30)


def test_without_seeded_it_is_not_exact(
    trainers: Zygote, tmp_path: Path, uninterrupted: Path
) -> None:
    """The very same transforms drawn from the workers' own random state: what `seeded` is for."""
    text = MAPPED.replace("run.seeded(Images())", "Images()").replace("WORKERS", "2")
    (tmp_path / "plain").mkdir()
    finish(trainers, script(tmp_path / "plain", text))
    die(trainers, script(tmp_path / "killed", text, die_at=5))
    finish(trainers, script(tmp_path / "killed", text))
    assert losses(tmp_path / "plain/run") != losses(tmp_path / "killed/run")


@pytest.mark.parametrize(
    ("name", "loader"),
    [
        ("shuffled", "DataLoader(Images(), batch_size=4, shuffle=True)"),
        ("workers", "DataLoader(Images(), batch_size=4, shuffle=True, num_workers=2)"),
    ],
)
def test_a_plain_loader_is_skipped_through(
    trainers: Zygote, tmp_path: Path, name: str, loader: str
) -> None:
    text = STREAMED.replace("LOADER", loader)  # 15 batches a pass, 11 steps an epoch
    finish(trainers, script(tmp_path / "plain", text))
    for at in (4, 12, 28):
        die(trainers, script(tmp_path / "killed", text, die_at=at))
    told = finish(trainers, script(tmp_path / "killed", text))
    assert "batches of a stream without state_dict" in told
    assert_equal_runs(tmp_path / "killed/run", tmp_path / "plain/run", 33)


@pytest.mark.parametrize(
    ("data", "workers", "unknown"),
    [("run.seeded(Images())", 2, False), ("Images()", 0, False), ("Images()", 2, True)],
)
def test_the_receipt_says_what_it_cannot_know_of_samples(
    trainers: Zygote, tmp_path: Path, data: str, workers: int, unknown: bool
) -> None:
    text = MAPPED.replace("run.seeded(Images())", data).replace("WORKERS", str(workers))
    die(trainers, script(tmp_path, text, die_at=5))
    told = finish(trainers, script(tmp_path, text))
    assert "the same bits as far as given" in told
    assert (
        "(not known: whether making a sample draws random numbers, as run.seeded is not used)"
        in told
    ) == unknown


BUFFERED = """
class Buffered(IterableDataset):
    def __iter__(self):
        held = []
        for number in range(200):
            held.append(torch.full((6,), number / 200))
            if len(held) == 8: yield held.pop(int(torch.randint(8, ())))
"""


@pytest.mark.parametrize(
    ("loader", "told"),
    [
        ("DataLoader(Buffered(), batch_size=4)", True),
        ("DataLoader(torch.arange(360.0).view(60, 6) / 300, batch_size=4, shuffle=True)", False),
        ("Positioned()", False),
    ],
)
def test_the_receipt_says_that_a_stream_draws_from_the_generators_of_the_training(
    trainers: Zygote, tmp_path: Path, loader: str, told: bool
) -> None:
    text = STREAMED.replace("run = Run(", BUFFERED + OWN + "\nrun = Run(", 1).replace(
        "LOADER", loader
    )
    die(trainers, script(tmp_path, text, die_at=5))
    said = finish(trainers, script(tmp_path, text))
    doubt = "bits may differ from the uninterrupted run: the stream has no state_dict and draws random numbers"
    assert (doubt in said) == told
    assert ("the same bits as far as given" in said) != told


OWN = """
class Positioned:
    def __init__(self): self.at = 0
    def __iter__(self):
        while True:
            self.at += 1
            yield torch.sin(torch.arange(24.0) * self.at).view(4, 6)
    def state_dict(self): return {"at": self.at}
    def load_state_dict(self, state): self.at = state["at"]
"""


def test_a_stream_that_knows_its_position(trainers: Zygote, tmp_path: Path) -> None:
    text = STREAMED.replace("run = Run(", OWN + "\nrun = Run(", 1).replace("LOADER", "Positioned()")
    finish(trainers, script(tmp_path / "plain", text))
    die(trainers, script(tmp_path / "killed", text, die_at=17))
    told = finish(trainers, script(tmp_path / "killed", text))
    assert "skipped" not in told
    assert_equal_runs(tmp_path / "killed/run", tmp_path / "plain/run", 33)
    state = final_state(tmp_path / "killed/run", 33)[1]
    assert state["objects"]["stream"]["own"] == {"at": 33}


class Counting:
    """A loader that knows its position; as torchdata's over a plain iterable it may count what it passes over twice."""

    def __init__(self, *, doubled: bool = False) -> None:
        self.at, self._doubled = 0, doubled

    def __iter__(self) -> Any:
        first = self.at
        self.at += self.at * self._doubled
        return self._from(first)

    def _from(self, first: int) -> Any:
        for number in range(first, 10):
            self.at += 1
            yield number

    def state_dict(self) -> dict[str, Any]:
        return {"deep": [torch.ones(2), self.at, float("nan")]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["deep"][1]


class Late:
    """Shows its position from the next batch on, as sets of Hugging Face do, and begins each pass where it was loaded.

    With `workers`, batches come from that many in turn, and each shows its position after its own next one.
    """

    def __init__(self, workers: int = 0, *, forgets: bool = False) -> None:
        self.num_workers, self._forgets = workers, forgets
        self._starting_state_dict: Any = None
        self._shown = self._fresh()

    def _fresh(self) -> list[dict[str, int]]:
        return [{"shard": 0, "at": 0} for _ in range(max(1, self.num_workers))]

    def __iter__(self) -> Any:
        at = [dict(place) for place in self._starting_state_dict or self._fresh()]
        self._shown = self._fresh()
        done = sum(3 * place["shard"] + place["at"] for place in at)
        for number in range(done, 12):
            place = number % len(at)
            at[place] = {"shard": (number // len(at) + 1) // 3, "at": (number // len(at) + 1) % 3}
            self._shown[place] = at[place]
            yield number

    def state_dict(self) -> dict[str, Any]:
        return {"places": [dict(place) for place in self._shown], "previous": None, "name": "late"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not self._forgets:
            self._starting_state_dict = state["places"]


class BufferShuffledExamplesIterable:
    """By its name what the sets of Hugging Face shuffle with."""


class Shuffled:
    """A set whose state lacks the content of its buffer."""

    def __init__(self) -> None:
        self._ex_iterable = type("Mapped", (), {"ex_iterable": BufferShuffledExamplesIterable()})()

    def __iter__(self) -> Any:
        return iter([3, 1, 2, 0])

    def state_dict(self) -> dict[str, Any]:
        raise AssertionError("it would come back with another order")

    load_state_dict = None


def numbers(stream: Stream, count: int) -> list[Any]:
    return list(stream.next_batches(count, lambda: None))


class TestStream:
    def test_passes_follow_each_other(self) -> None:
        stream = Stream([1, 2, 3])
        assert [numbers(stream, 2) for _ in range(3)] == [[1, 2], [3, 1], [2, 3]]

    def test_left_out_batches_are_fetched_and_dropped(self) -> None:
        stream = Stream(range(10))
        given = []
        for batch in stream.next_batches(6, lambda: None):
            given.append(batch)
            if batch == 1:
                stream.skip_batches(2)
        assert given == [0, 1, 4, 5]
        assert numbers(stream, 1) == [6]

    def test_what_is_still_to_be_dropped_is_saved(self) -> None:
        stream = Stream(range(10))
        numbers(stream, 2)
        stream.skip_batches(2)
        again = Stream(range(10))
        again.load_state_dict(stream.state_dict())
        assert again.state_dict() == stream.state_dict()
        assert numbers(again, 2) == [4, 5]

    def test_the_random_state_is_put_back_before_the_first_fetch(self) -> None:
        order: list[str] = []

        class Source:
            def __iter__(self) -> Any:
                order.append("opened")
                return self.batches()

            def batches(self) -> Any:
                order.append("fetched")
                yield 1

        stream = Stream(Source())
        for _ in stream.next_batches(1, lambda: order.append("random state")):
            break
        assert order == ["opened", "random state", "fetched"]

    def test_a_source_that_counts_twice_is_refused_and_its_place_kept(self) -> None:
        stream = Stream(Counting(doubled=True))
        numbers(stream, 3)
        again = Stream(Counting(doubled=True))
        again.load_state_dict(stream.state_dict())
        with pytest.raises(
            UsageError,
            match=r"\(Counting\) does not come back .*: after iter\(\) deep/1 was 3, is 6",
        ):
            numbers(again, 1)
        assert again.state_dict()["own"]["deep"][1] == 3, "a save keeps where it should be"
        plain = Stream(range(10))
        plain.load_state_dict(again.state_dict())
        assert "order" in plain.order_doubt
        assert numbers(plain, 2) == [3, 4]
        assert plain.order_doubt == ""

    @pytest.mark.parametrize("workers", [0, 2, 3])
    def test_a_source_that_shows_its_position_late_goes_on(self, workers: int) -> None:
        whole = numbers(Stream(Late(workers)), 40)
        for cuts in ([3, 1, 1, 8, 20], [1] * 30, [12, 3], [11, 1, 1, 12, 9]):
            seen: list[Any] = []
            state = None
            for count in cuts:
                stream = Stream(Late(workers))
                if state is not None:
                    stream.load_state_dict(state)
                batches = stream.next_batches(99, lambda: None)
                seen += [next(batches) for _ in range(count)]
                state = stream.state_dict()
            assert seen == whole[: len(seen)]

    def test_a_source_that_never_comes_back_is_refused(self) -> None:
        stream, again = Stream(Late(forgets=True)), Stream(Late(forgets=True))
        numbers(stream, 5)
        again.load_state_dict(stream.state_dict())
        with pytest.raises(UsageError, match=r"\(Late\) does not come back .* was 1, is 0"):
            numbers(again, 1)

    def test_a_shuffle_buffer_is_read_again(self) -> None:
        stream, again = Stream(Shuffled()), Stream(Shuffled())
        numbers(stream, 2)
        again.load_state_dict(stream.state_dict())
        assert numbers(again, 3) == [2, 0, 3]

    def test_a_source_that_does_not_is_taken(self) -> None:
        stream = Stream(Counting())
        numbers(stream, 3)
        again = Stream(Counting())
        again.load_state_dict(stream.state_dict())
        assert numbers(again, 2) == [3, 4]

    def test_a_stream_that_is_used_up_or_too_short(self) -> None:
        with pytest.raises(UsageError, match="used up"):
            numbers(Stream(iter([])), 1)
        long, short = Stream(range(9)), Stream(range(3))
        numbers(long, 5)
        short.load_state_dict(long.state_dict())
        with pytest.raises(UsageError, match="ended after 3 batches, 5 were used before"):
            numbers(short, 1)


def test_a_run_needs_to_know_its_length(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1)
    with pytest.raises(UsageError, match="without a length needs steps_per_epoch"):
        Run(tmp_path / "run", model=model, epochs=1, stream=iter([1]), options=Options())
    run = Run(tmp_path / "run", model=model, epochs=1, samples=4, batch_size=2)
    with run, pytest.raises(UsageError, match="has no stream"):
        run.stream()
