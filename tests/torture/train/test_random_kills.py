"""Trainers that save after every step are SIGKILLed again and again, many times in the middle of a save."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.process.train.harness import Zygote, assert_same, events, final_state, losses
from tests.torture.train import killing
from tests.torture.train.conftest import FULL
from tests.torture.train.killing import LEAST, Tally, until_finished
from tests.torture.train.launched import Launched
from tests.torture.train.ranks import WORLD, Forked, Torchrun, ended_by_us

CHAR_LM = {"epochs": 4, "steps_per_epoch": 100, "save_every": 1}
EPOCHS = 12
COUNTS = {
    "char_lm": (12, 150),
    "image_classifier": (12, 150),
    "ddp": (3, 90),
    "fsdp": (3, 90),
    "torchrun": (0, 20),
}
"""Kills in CI, and in the full form."""
ORPHANS_S = 90.0
"""Workers of torch's loader look every five seconds whether their trainer is still there."""


@dataclass(frozen=True)
class Training:
    """What is killed.

    Attributes:
        launch: Starts it in the directory it is given; its run directory is ``run`` in there.
        equal: Compares two run directories.
        ended: Whether it may end with an exit code after a kill.
    """

    launch: Callable[[Path], Launched]
    equal: Callable[[Path, Path], None]
    ended: Callable[[int], bool] = lambda code: code == -signal.SIGKILL


def trainings(trainers: Zygote) -> dict[str, Training]:
    def image(place: Path) -> Launched:
        script = place / "image_loop.py"
        if not script.exists():
            shutil.copy(Path(__file__).with_name("image_loop.py"), script)
        return trainers.launch_script(script, background=True)

    def words(place: Path, kind: str) -> list[str]:
        return [str(place / "run"), "--parallel", kind, "--save-every", "1", "--epochs", "4"]

    return {
        "char_lm": Training(
            lambda place: trainers.launch(place / "run", CHAR_LM), partial(equal_runs, last=400)
        ),
        "image_classifier": Training(image, partial(equal_runs, last=16 * EPOCHS)),
        "ddp": Training(
            lambda place: Forked(trainers, words(place, "ddp")), equal_ranks, ended_by_us
        ),
        "fsdp": Training(
            lambda place: Forked(trainers, words(place, "fsdp")), equal_ranks, ended_by_us
        ),
        "torchrun": Training(lambda place: Torchrun(words(place, "ddp")), equal_ranks, ended_by_us),
    }


def equal_ranks(out: Path, plain: Path) -> None:
    """Compare what each rank says of weights, optimizer and random state at the end, and the loss log."""
    assert losses(out) == losses(plain)
    for rank in range(WORLD):
        left, right = (
            json.loads((path / f"final-{rank}.json").read_text()) for path in (out, plain)
        )
        assert left == right, f"rank {rank}"
        assert len(left["state"]) > 10


def equal_runs(out: Path, plain: Path, last: int) -> None:
    """Compare weights, optimizer, random state, position, loss log and results, bit by bit."""
    assert losses(out) == losses(plain)
    left, right = (final_state(path, last) for path in (out, plain))
    assert_same(left[0], right[0])
    # Whether the last step is saved before or after the last validation is a matter of timing, also without any kill:
    # its epoch is still the current one, with the sum of its losses, or left. The end of an epoch is the beginning of
    # the next one.
    for path, state in ((out, left[1]), (plain, right[1])):
        progress = state["progress"]
        logged = losses(path)
        first = progress["step"] - progress["done_steps"] + 1
        summed = 0.0  # in the order of the steps: a sum in another order may differ in its last bit
        for step in range(first, progress["step"] + 1):
            summed += logged[step]
        assert progress.pop("loss_sum") == summed
        assert progress.pop("loss_count") == progress["done_steps"]
        progress["done_steps"] += progress.pop("epoch") * state["sampler"]["steps_per_epoch"]
        # Both resume to the same end. What was best in the end is compared by best.json and result.json.
        for name in ("best", "best_step"):
            progress.pop(name)
    for key in ("objects", "rng", "sampler", "progress"):
        assert_same(left[1][key], right[1][key], key)
    for name in ("result.json", "best.json"):
        if (plain / name).exists() or (out / name).exists():
            assert json.loads((out / name).read_text()) == json.loads((plain / name).read_text()), (
                name
            )


def assert_nothing_left(out: Path, memory: set[str]) -> None:
    assert [p.name for p in (out / "checkpoints").iterdir() if p.name.startswith(".")] == []
    assert [p.name for p in out.iterdir() if p.name.startswith((".", "tmp"))] == []
    patience = time.monotonic() + ORPHANS_S
    while (there := killing.holders(out)) and time.monotonic() < patience:
        time.sleep(0.1)  # nothing tells of the end of somebody else's child
    assert there == [], "a process of a dead launch is still there"
    assert killing.shared_memory() == memory


def test_a_save_before_the_last_validation_equals_one_after_it(
    trainers: Zygote, tmp_path: Path
) -> None:
    """The two forms that chance chooses between in a plain run that saves in the background, chosen here."""
    places = {"before": 1, "after": 1000}
    for name, every in places.items():
        values = {"save_every": every, "background": False}
        assert trainers.launch(tmp_path / name, values).wait() == 0
    last = 80
    counts = [final_state(tmp_path / name, last)[1]["progress"]["loss_count"] for name in places]
    assert counts == [40, 0]
    equal_runs(tmp_path / "before", tmp_path / "after", last)


@pytest.mark.parametrize(
    "name",
    [
        # Others are other loops around the same library, and ranks that save by the same calls.
        pytest.param(name, marks=() if name == "char_lm" else pytest.mark.full)
        for name, counts in COUNTS.items()
        if counts[FULL]
    ],
)
@pytest.mark.timeout(3600)
def test_random_kills(trainers: Zygote, tmp_path: Path, name: str) -> None:
    training, wanted = trainings(trainers)[name], COUNTS[name][FULL]
    seed = random.SystemRandom().randrange(2**32)
    draw, tally, memory = random.Random(seed), Tally(), killing.shared_memory()
    plain = tmp_path / "plain"
    plain.mkdir()
    assert training.launch(plain).wait() == 0
    while not tally.enough(wanted):
        place = tmp_path / f"round{tally.rounds}"
        place.mkdir()
        start = partial(training.launch, place)
        until_finished(start, place / "run", wanted, draw, tally, ended=training.ended)
        told = f"seed {seed}: {tally.told()}\n" + "\n".join(tally.log)
        try:
            training.equal(place / "run", plain / "run")
            assert_nothing_left(place / "run", memory)
            assert len(events(place / "run", "start")) == 1
        except AssertionError as error:
            raise AssertionError(told) from error
        shutil.rmtree(place)
    print(f"{name}: {tally.told()}")
    assert tally.inside >= LEAST * wanted or wanted < killing.FEW, told
