from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rgt_box.streams import job_files
from rgt_box.streams.follows import SILENT, FrozenLogs
from rgt_box.streams.job_files import CheckpointWatch, manifest_bytes


def publish(folder: Path, step: int, size: int) -> None:
    temporary = folder.parent / ".tmp-1"
    temporary.mkdir(parents=True)
    files = [{"path": "model", "size": size, "sha256": "0"}]
    (temporary / "manifest.json").write_text(json.dumps({"step": step, "files": files}))
    temporary.rename(folder)


def test_the_list_is_told_when_it_changes_and_only_then(tmp_path: Path) -> None:
    watch = CheckpointWatch("a", str(tmp_path))
    assert watch.poll() is None
    publish(tmp_path / "checkpoints" / "step-00000320", 320, 10)
    publish(tmp_path / "checkpoints" / "step-00000640-a3", 640, 20)
    publish(tmp_path / "best", 320, 10)
    frame = watch.poll()
    assert frame is not None
    shown = [(item["step"], item["bytes"], item.get("best", False)) for item in frame["items"]]
    assert sorted(shown) == [(320, 10, False), (320, 10, True), (640, 20, False)]
    assert watch.poll() is None
    (tmp_path / "metrics.jsonl").write_text("x")
    assert watch.poll() is None
    (tmp_path / "checkpoints" / "step-00000320" / "manifest.json").unlink()
    (tmp_path / "checkpoints" / "step-00000320").rename(tmp_path / "gone")
    frame = watch.poll()
    assert frame is not None
    assert [item["step"] for item in frame["items"]] == [320, 640]


def test_without_a_manifest_the_files_are_added_up(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "step-7"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"x" * 123)
    (tmp_path / "best.json").write_text('{"step": 5}')
    (tmp_path / "best").mkdir()
    frame = CheckpointWatch("a", str(tmp_path)).poll()
    assert frame is not None
    assert [(item["step"], item["bytes"]) for item in frame["items"]] == [(5, 0), (7, 123)]


@pytest.mark.parametrize(
    ("manifest", "size"),
    [
        ({"files": [{"size": 1}, {"bytes": 2}]}, 3),
        ({"files": {"a": {"size": 4}}}, 4),
        ({"files": []}, None),
        ({"files": [{"name": "x"}]}, None),
        ({"files": ["x"]}, None),
        ({}, None),
    ],
)
def test_sizes_of_a_manifest(manifest: dict[str, Any], size: int | None) -> None:
    assert manifest_bytes(manifest) == size


def test_a_checkpoint_that_is_a_link_to_everything_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever trains on the box may lay it; all of its disks would be walked at every look."""
    everything = tmp_path / "everything"
    (everything / "a").mkdir(parents=True)
    (everything / "a" / "file").write_bytes(b"12345")
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "step-1").symlink_to(everything)
    publish(tmp_path / "elsewhere", 3, 7)
    (folder / "step-3").symlink_to(tmp_path / "elsewhere")
    (folder / "step-2").mkdir()
    (folder / "step-2" / "file").write_bytes(b"123")
    for number in range(5):
        (folder / "step-2" / "more" / str(number)).mkdir(parents=True)
        (folder / "step-2" / "more" / str(number) / "file").write_bytes(b"1")
    monkeypatch.setattr(job_files, "MOST_FILES", 8)
    frame = CheckpointWatch("a", str(tmp_path / "run")).poll()
    assert frame is not None
    assert [(item["step"], item["bytes"]) for item in frame["items"]] == [(2, 4), (3, 7)]


def test_a_silent_log_beside_fresh_checkpoints_is_told_once_per_silence(tmp_path: Path) -> None:
    log, frozen = tmp_path / "a.log", FrozenLogs()
    assert frozen.look("a", str(log), 1e9) == []
    log.write_text("epoch 1\n")
    wrote = log.stat().st_mtime
    assert frozen.look("a", str(log), wrote + SILENT / 2) == []
    (event,) = frozen.look("a", str(log), wrote + 2 * SILENT)
    assert (event["kind"], event["text"][:3]) == ("log-frozen", "a: ")
    assert frozen.look("a", str(log), wrote + 3 * SILENT) == []
    os.utime(log, (wrote + 5, wrote + 5))
    assert len(frozen.look("a", str(log), wrote + 3 * SILENT)) == 1
