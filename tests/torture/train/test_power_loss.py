"""The power fails at any point of a save: every state that the disk may then hold still has what was committed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.process.train.harness import TINY, Zygote, assert_same, final_state, losses
from tests.torture.train import disk_model, drill, watched
from tests.torture.train.disk_model import Change, Recorder, Tree
from tests.torture.train.watched import Watched

pytestmark = (
    pytest.mark.full
)  # torture: `test_every_syscall` and `test_random_kills` have a short form of it

SEED = 20
VALUES = {"epochs": 1, "steps_per_epoch": 12, "save_every": 4}


@pytest.fixture(autouse=True)
def kernel() -> None:
    watched.require()


STEP, BEST = ".tmp-latest", ".tmp-best.json"
"""What is written next after a step, or a best, was published: from then on it counts as committed."""


def committed(changes: list[Change], count: int, follows: str) -> bool:
    """Say whether the program took something for committed within the first `count` changes."""
    return any(
        c.kind == "make" and c.at is not None and c.at[1] == follows for c in changes[:count]
    )


def record(trainers: Zygote, place: Path, root: Path, job: str, *words: str) -> Recorder:
    recorder = Recorder(root)
    assert Watched(trainers, place, recorder, job, *words).wait() == 0
    assert recorder.tree() == disk_model.read_tree(root), "the record is not what happened"
    return recorder


def test_a_save_on_top_of_others(trainers: Zygote, quick_disk: Path, tmp_path: Path) -> None:
    root = quick_disk / "disk"
    drill.prepare(root / "run")
    recorder = record(trainers, tmp_path, root, "save", str(root / "run"))
    seen: set[tuple[Tree, bool, bool]] = set()
    draw = random.Random(SEED)
    place = quick_disk / "state"
    for count in range(len(recorder.changes) + 1):
        step, best = (committed(recorder.changes, count, name) for name in (STEP, BEST))
        for tree in disk_model.states(recorder.base, recorder.changes, count, draw):
            if (tree, step, best) in seen:
                continue
            seen.add((tree, step, best))
            disk_model.build(tree, place)
            wrong = drill.look(place / "run", (3,) if step else (2, 3), (3,) if best else (1, 3))
            names = [path for path, _ in tree]
            assert wrong is None, (
                f"after change {count} of {len(recorder.changes)}: {wrong}; it held {names}"
            )
            shutil.rmtree(place)
    print(f"{len(recorder.changes)} changes, {len(seen)} states of the disk")
    assert len(seen) > 100


def test_the_first_save_of_a_trainer(
    trainers: Zygote, quick_disk: Path, tmp_path: Path, full: bool
) -> None:
    """From an empty disk on, with the real trainer: a launch on what is left goes on, with the same bits."""
    root, place, plain = quick_disk / "disk", quick_disk / "state", tmp_path / "plain"
    root.mkdir()
    words = [
        word for key, value in {**TINY, **VALUES}.items() for word in ("--set", f"{key}={value}")
    ]
    recorder = record(trainers, tmp_path, root, "train", "--out", str(root / "run"), *words)
    assert trainers.launch(plain, VALUES).wait() == 0
    draw = random.Random(SEED)
    seen: dict[Tree, bool] = {}
    for count in range(len(recorder.changes) + 1):
        if count and recorder.changes[count - 1].kind == "data":
            continue  # what is written but not synced is tried after the next change, in all its states
        step = committed(recorder.changes, count, STEP)
        for tree in disk_model.states(recorder.base, recorder.changes, count, draw):
            seen[tree] = seen.get(tree, False) or step
            if step:
                assert any(path.startswith("run/checkpoints/step-") for path, _ in tree), (
                    count,
                    tree,
                )
    trees = sorted(seen, key=lambda tree: draw.random())[: 300 if full else 8]
    for tree in trees:
        disk_model.build(tree, place)
        trainer = trainers.launch(place / "run", VALUES)
        assert trainer.wait() == 0, trainer.text()
        if seen[tree] and not any(path == "run/result.json" for path, _ in tree):
            assert "resume: at step" in trainer.text() and "from /" in trainer.text(), (
                trainer.text()
            )
            assert "damaged" not in trainer.text()
        if any(path.startswith("run/checkpoints/") for path, _ in disk_model.read_tree(place)):
            assert_same(final_state(place / "run", 12)[0], final_state(plain, 12)[0])
        shutil.rmtree(place)
    print(
        f"{len(recorder.changes)} changes, {len(seen)} states of the disk, {len(trees)} of them launched"
    )
    assert losses(plain)
