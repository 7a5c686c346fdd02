"""A damaged checkpoint is found by its bytes, passed over within the same launch, and kept for an inspection."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rgt_train import exits
from rgt_train.checkpoint import manifest

from tests.process.train.harness import (
    Zygote,
    assert_same,
    checkpoint_of,
    events,
    final_state,
    losses,
)

FILES = ("model.safetensors", "trainer.safetensors", "state.json", "manifest.json")
VALUES = {"epochs": 1, "steps_per_epoch": 20, "save_every": 5, "background": False}
NEWEST, BEFORE, LAST = 20, 15, 20


@pytest.fixture(scope="module")
def whole(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that lost its result, so that a launch looks at its checkpoints."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert trainers.launch(out, VALUES).wait() == 0
    (out / "result.json").unlink()
    return out


def flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[min(int(len(data) * at), len(data) - 1)] ^= 1
    path.write_bytes(data)


def relaunch(trainers: Zygote, out: Path, whole: Path) -> str:
    trainer = trainers.launch(out, VALUES)
    assert trainer.wait() == 0, trainer.text()
    assert losses(out) == losses(whole)
    assert_same(final_state(out, LAST)[0], final_state(whole, LAST)[0])
    return trainer.text()


@pytest.mark.full_matrix
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("at", [0.0, 0.4, 0.99])
def test_one_flipped_bit(
    trainers: Zygote, whole: Path, tmp_path: Path, name: str, at: float
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    flip(checkpoint_of(out, NEWEST) / name, at)
    text = relaunch(trainers, out, whole)
    assert f"step-{NEWEST:08d}-a1 is damaged, not used: {name}" in text
    assert f"going back to step {BEFORE}" in text
    assert events(out, "resume")[0]["step"] == BEFORE
    assert [p.name for p in (out / "checkpoints").glob(".damaged-*")] == [
        f".damaged-step-{NEWEST:08d}-a1-2"
    ]


@pytest.mark.parametrize("name", FILES)
def test_a_cut_and_a_missing_file(trainers: Zygote, whole: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    newest, before = (checkpoint_of(out, step) for step in (NEWEST, BEFORE))
    (newest / name).unlink()
    data = (before / name).read_bytes()
    (before / name).write_bytes(data[:-1])
    text = relaunch(trainers, out, whole)
    assert text.count("is damaged, not used") == 2
    # No step checkpoint is left, but best is one too (here it is the last step).
    assert f"going back to step {LAST}" in text


def content(out: Path) -> dict[str, bytes]:
    """Return all files of the checkpoints by path."""
    places = [out / "checkpoints", out / "best"]
    return {
        str(p): p.read_bytes() for place in places for p in sorted(place.rglob("*")) if p.is_file()
    }


def test_nothing_good_is_left(trainers: Zygote, whole: Path, tmp_path: Path) -> None:
    """To begin anew would end in the deletion of what a person may still save: it ends, each time, as it came."""
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    for path in [*(out / "checkpoints").glob("step-*"), out / "best"]:
        flip(path / "model.safetensors", 0.5)
    before = content(out)
    for _ in range(2):
        trainer = trainers.launch(out, VALUES)
        assert trainer.wait() == exits.USAGE, trainer.text()
        told = trainer.lines[-1]
        assert f"no checkpoint in {out} is good, and none was deleted: checkpoint " in told
        assert told.count("is damaged, not used: model.safetensors: crc32") == 3
        assert "give another --out" in told
        assert content(out) == before
    flip(
        checkpoint_of(out, BEFORE) / "model.safetensors", 0.5
    )  # what was read wrong is right again
    assert f"going back to step {BEFORE}" in relaunch(trainers, out, whole)


def test_strays_are_cleaned(trainers: Zygote, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    root = out / "checkpoints"
    for name in (".tmp-25-1", ".old-step-00000010-1"):
        shutil.copytree(root / f"step-{NEWEST:08d}-a1", root / name)
    shutil.copytree(root / f"step-{NEWEST:08d}-a1", root / "step-00000099x")
    (root / ".tmp-30-1").mkdir()
    (out / ".tmp-best.json").write_text("{")
    text = relaunch(trainers, out, whole)
    assert "cleaned up after the last attempt: .old-step-00000010-1, .tmp-25-1, .tmp-30-1" in text
    assert not list(root.glob(".[to]*"))
    assert not (out / ".tmp-best.json").exists()
    assert (root / "step-00000099x").exists(), "not ours: left alone"


@pytest.mark.parametrize("half", ["new complete", "new torn"])
def test_a_swap_of_best_cut_in_two(
    trainers: Zygote, whole: Path, tmp_path: Path, half: str
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    root = out / "checkpoints"
    shutil.copytree(out / "best", root / ".tmp-best-20-1")
    (out / "best").rename(root / ".old-best-1")
    if half == "new torn":
        flip(root / ".tmp-best-20-1" / "model.safetensors", 0.5)
    relaunch(trainers, out, whole)
    for name in FILES[:3]:
        assert (out / "best" / name).exists()
    assert not list(root.glob(".[to]*"))


def test_best_is_made_again_or_mended(trainers: Zygote, tmp_path: Path) -> None:
    values, out = {**VALUES, "epochs": 2}, tmp_path / "run"
    assert trainers.launch(out, values).wait() == 0
    (
        out / "result.json"
    ).unlink()  # killed after the last save, which knows the best of the first epoch
    before = (out / "best.json").read_text()
    (out / "best.json").write_text("{}")
    mended = trainers.launch(out, values)
    assert mended.wait() == 0, mended.text()
    assert (out / "best.json").read_text() == before
    (out / "result.json").unlink()
    flip(out / "best" / "model.safetensors", 0.5)
    again = trainers.launch(out, values)
    assert again.wait() == 0, again.text()
    assert "best of step 20 is damaged: model.safetensors: " in again.text()
    assert (
        manifest.verify_checkpoint(out / "best")["best"]
        == json.loads((out / "best.json").read_text())
        == json.loads(before)
    )
    assert [p.name for p in (out / "checkpoints").glob(".damaged-*")] == [".damaged-best-3"]


def test_another_model_is_refused_not_overwritten(
    trainers: Zygote, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    before = sorted(p.name for p in (out / "checkpoints").iterdir())
    trainer = trainers.launch(out, {**VALUES, "width": 16})
    assert trainer.wait() == exits.USAGE
    assert "does not fit this model" in trainer.text()
    other_data = trainers.launch(out, {**VALUES, "seed": 7})
    assert other_data.wait() == exits.USAGE
    assert (
        "made with other data settings: samples 510 → 504, seed 0 → 7; its pos" in other_data.text()
    )
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == before


def test_a_second_trainer_is_refused(trainers: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = trainers.launch(out, {**VALUES, "pace_ms": 60_000})
    first.wait_line(r"^step 1 ")
    second = trainers.launch(out, VALUES)
    assert second.wait() == exits.USAGE
    assert f"another trainer is running in {out} (pid {first.pid} on " in second.text()
    first.kill()
    third = trainers.launch(out, VALUES)
    assert third.wait() == 0, third.text()
