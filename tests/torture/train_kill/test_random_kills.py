"""A trainer that saves after every step is SIGKILLed again and again, many times in the middle of a save."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.train.harness import Zygote, assert_same, events, final_state, losses, zygote

KILLS = 24
INSIDE = 8
VALUES = {"epochs": 4, "steps_per_epoch": 250, "save_every": 1}
LAST = 1000


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with zygote(tmp_path_factory.mktemp("trainers") / "fifos") as running:
        yield running


def half_done(out: Path) -> list[str]:
    """Return what a kill left in the middle: the proof that it hit a save."""
    root = out / "checkpoints"
    return (
        sorted(p.name for p in root.iterdir() if p.name.startswith((".tmp-", ".old-")))
        if root.is_dir()
        else []
    )


def test_random_kills(trainers: Zygote, tmp_path: Path) -> None:
    plain, out = tmp_path / "plain", tmp_path / "run"
    seed = random.SystemRandom().randrange(2**32)
    draw, never = random.Random(seed), threading.Event()
    reference = trainers.launch(plain, {**VALUES, "save_every": 1000})
    log: list[str] = []
    kills = inside = 0
    while kills < KILLS or inside < INSIDE:
        trainer = trainers.launch(out, VALUES)
        trainer.wait_more_lines(draw.randint(1, 40))
        never.wait(draw.random() * 0.012)  # anywhere within a step or a save, not only after a line
        code = trainer.kill()
        if code == 0:
            break
        assert code == -signal.SIGKILL, trainer.text()
        kills += 1
        remains = half_done(out)
        inside += bool(remains)
        log.append(
            f"kill {kills}: {trainer.lines[-1][:60] if trainer.lines else '(at start)'} | left {remains}"
        )
    last = trainers.launch(out, {**VALUES, "save_every": 1000})
    assert last.wait() == 0, last.text()
    assert reference.wait() == 0
    told = f"seed {seed}: {kills} kills, {inside} inside a save\n" + "\n".join(log)
    print(told)
    assert kills >= KILLS, told
    assert inside >= INSIDE, told
    assert losses(out) == losses(plain), told
    left, right = (final_state(path, LAST) for path in (out, plain))
    assert_same(left[0], right[0])
    for key in ("objects", "rng", "sampler"):
        assert_same(left[1][key], right[1][key], key)
    assert json.loads((out / "result.json").read_text()) == json.loads((plain / "result.json").read_text())
    assert json.loads((out / "best.json").read_text()) == json.loads((plain / "best.json").read_text())
    assert half_done(out) == []
    assert len(events(out, "start")) == 1
