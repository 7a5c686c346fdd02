"""A second copy elsewhere: read back before it counts, and the way home when the local disk is wiped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rgt_train import exits, manifest
from rgt_train.exits import UsageError
from rgt_train.manifest import Damaged
from rgt_train.mirror import worker
from rgt_train.mirror.folder import Folder
from rgt_train.mirror.opening import open_place
from rgt_train.mirror.place import check, fetch
from rgt_train.retention import Policy
from rgt_train.store import Store
from rgt_train.writing import Job, perform

from tests.unit.train.harness import Zygote, assert_same, events, final_state, losses
from tests.unit.train.test_damage import flip

LAST = 80
SLOW = {"pace_ms": 20}


def publish(out: Path, step: int, kind: str = "step", size: int = 3000) -> Path:
    out.mkdir(exist_ok=True)
    data = bytes(range(256)) * (size // 256 + 1)
    about = {"best": {"step": step, "metric": "m", "value": 1.0}, "time": 3600.0 * step}
    done = perform(
        Store(out, 1, Policy(9)), Job(kind, step, about, [("a", 0, size)]), memoryview(data), b"{}"
    )
    assert done.path is not None
    return Path(done.path)


class TestFolder:
    def test_a_copy_counts_after_it_was_read_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source, place = publish(tmp_path / "run", 7), Folder(str(tmp_path / "mirror"))
        answer = worker.copy(place, str(source), source.name, Policy())
        assert answer["bytes"] == 3002
        assert manifest.verify(tmp_path / "mirror" / source.name)["step"] == 7
        real = Folder.read

        def altered(self: Folder, name: str, file: str) -> Any:
            for piece in real(self, name, file):
                yield piece[:-1] + bytes([piece[-1] ^ 1]) if file == "a" else piece

        monkeypatch.setattr(Folder, "read", altered)
        with pytest.raises(Damaged, match="a reads back differently"):
            worker.copy(place, str(source), source.name, Policy())

    def test_the_policy_holds_there_too(self, tmp_path: Path) -> None:
        place = Folder(str(tmp_path / "mirror"))
        for step in (1, 2, 3, 26):
            source = publish(tmp_path / "run", step)
            worker.copy(place, str(source), source.name, Policy(1, 24.0))
        for step in (2, 3):
            worker.copy(
                place, str(publish(tmp_path / "run", step, "best")), f"best-{step:08d}-a1", Policy(1, 24.0)
            )
        kept = ["best-00000003-a1", "step-00000001-a1", "step-00000026-a1"]
        assert sorted(place.names()) == kept

    def test_a_checkpoint_that_was_pruned_meanwhile_is_no_failure(self, tmp_path: Path) -> None:
        place = Folder(str(tmp_path / "mirror"))
        assert worker.copy(place, str(tmp_path / "gone"), "step-00000001-a1", Policy()) == {"gone": True}

    def test_a_half_copy_of_a_dead_process_is_replaced(self, tmp_path: Path) -> None:
        source, mirror = publish(tmp_path / "run", 7), tmp_path / "mirror"
        place = Folder(str(mirror))
        (mirror / f".tmp-{source.name}").mkdir()
        (mirror / f".tmp-{source.name}" / "a").write_text("half")
        assert place.names() == []
        worker.copy(place, str(source), source.name, Policy())
        check(place, source.name, manifest.read(source)["files"])
        assert [path.name for path in mirror.iterdir()] == [source.name]

    def test_fetched_bytes_are_verified(self, tmp_path: Path) -> None:
        source, mirror = publish(tmp_path / "run", 7), tmp_path / "mirror"
        place = Folder(str(mirror))
        worker.copy(place, str(source), source.name, Policy())
        fetch(place, source.name, str(tmp_path / "back"))
        assert (tmp_path / "back" / "a").read_bytes() == (source / "a").read_bytes()
        flip(mirror / source.name / "a", 0.5)
        with pytest.raises(Damaged, match="a: crc32"):
            fetch(place, source.name, str(tmp_path / "again"))
        assert not (tmp_path / "again").exists()

    def test_places_that_are_mistakes(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="absolute path"):
            open_place("mirror")
        with pytest.raises(FileNotFoundError):
            open_place(str(tmp_path / "not" / "mounted"))
        with pytest.raises(UsageError, match="mirror nosuch://x"):
            open_place("nosuch://x")


@pytest.fixture(scope="module")
def reference(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "run"
    assert trainers.launch(out).wait() == 0
    return out


def same_end(out: Path, reference: Path) -> None:
    left, right = final_state(out, LAST), final_state(reference, LAST)
    assert_same(left[0], right[0])
    for key in ("objects", "rng", "sampler"):
        assert_same(left[1][key], right[1][key], key)
    for name in ("result.json", "best.json"):
        assert json.loads((out / name).read_text()) == json.loads((reference / name).read_text())


def test_a_wiped_disk_comes_back_from_the_mirror(trainers: Zygote, reference: Path, tmp_path: Path) -> None:
    out, mirror = tmp_path / "run", tmp_path / "mirror"
    values = {**SLOW, "mirror": mirror}
    first = trainers.launch(out, values)
    first.wait_line(r"^mirrored best-00000040-a1 → ")
    first.wait_line(r"^mirrored step-000000[4-7]\d-a1 → ")
    first.kill()
    shutil.rmtree(out)
    (mirror / ".tmp-step-00000079-a1").mkdir()  # what a killed copy leaves
    again = trainers.launch(out, {"mirror": mirror})
    assert again.wait() == 0, again.text()
    fetched = again.wait_line(r"^fetched step-")
    assert f"from the mirror {mirror}" in fetched
    assert "fetched best-00000040-a1 from the mirror" in again.text()
    same_end(out, reference)
    assert {"mirrored", "checkpoint"} <= {line.get("event") for line in map(json.loads, lines(out))}
    step = max(losses(out))
    assert step == LAST
    assert [path.name for path in mirror.iterdir() if f"{LAST:08d}" in path.name]
    after = again.lines.index(next(line for line in again.lines if line.startswith("mirrored step-00000080")))
    assert again.lines[-1].startswith("done: ")
    assert after < len(again.lines) - 1, "done only when the second copy was read back"


def lines(out: Path) -> list[str]:
    return (out / "metrics.jsonl").read_text().splitlines()


def test_a_damaged_local_disk_falls_back_to_the_mirror(
    trainers: Zygote, reference: Path, tmp_path: Path
) -> None:
    out, mirror = tmp_path / "run", tmp_path / "mirror"
    assert trainers.launch(out, {"mirror": mirror}).wait() == 0
    (out / "result.json").unlink()
    for path in [*(out / "checkpoints").glob("step-*"), out / "best"]:
        flip(path / "model.safetensors", 0.5)
    again = trainers.launch(out, {"mirror": mirror})
    assert again.wait() == 0, again.text()
    assert "is damaged, not used" in again.text()
    assert events(out, "resume")[0]["step"] == LAST
    same_end(out, reference)


def test_a_mirror_that_fails_does_not_stop_the_training(trainers: Zygote, tmp_path: Path) -> None:
    out, mirror = tmp_path / "run", tmp_path / "mirror"
    values = {"mirror": mirror, "hold_limit": 1, "epochs": 1, **SLOW}
    trainer = trainers.launch(out, values)
    trainer.wait_line(r"^mirrored step-")
    mirror.rename(tmp_path / "away")
    mirror.write_text("in the way")
    trainer.wait_line(r"^mirror failed at \S+: ")
    trainer.wait_line(r"^step 40 ")
    assert trainer.wait() == exits.NO_SPACE
    assert "not mirrored: step-00000040-a1 is on the local disk only" in trainer.text()
    assert events(out, "mirror-failed")
    assert not (out / "result.json").exists(), "a relaunch is to try again"
    mirror.unlink()
    again = trainers.launch(out, {**values, "pace_ms": 0})
    assert again.wait() == 0, again.text()
    assert (mirror / "step-00000040-a1" / "manifest.json").exists()


def test_nothing_here_and_a_mirror_that_does_not_answer_is_no_fresh_start(
    trainers: Zygote, tmp_path: Path
) -> None:
    trainer = trainers.launch(tmp_path / "run", {"mirror": tmp_path / "not" / "mounted"})
    assert trainer.wait() == exits.USAGE
    assert "has no checkpoint, and the mirror" in trainer.text()
