"""What a watch says of a run's checkpoints, with files in the formats that trainers write."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rgt_box import checkpoint_search
from rgt_box.checkpoint_search import CheckpointSearch
from rgt_box.streams.follows import SILENT, FrozenLogs
from rgt_box.streams.job_files import CheckpointWatch

from tests.unit.box.checkpoint_files import safetensors_file, torch_file

MODEL = safetensors_file(["layer.0.weight"], {})


def publish(folder: Path, step: int) -> None:
    """Publish a checkpoint as our trainer does: a directory that takes its name when it is complete."""
    temporary = folder.parent / ".tmp-1"
    temporary.mkdir(parents=True)
    (temporary / "model.safetensors").write_bytes(MODEL)
    (temporary / "manifest.json").write_text(json.dumps({"step": step}))
    temporary.rename(folder)


def settled(path: Path) -> Path:
    """Make a file or a tree older than a checkpoint that may still be written."""
    for each in [path, *path.rglob("*")]:
        os.utime(each, (1e9, 1e9))
    return path


def listed(frame: dict[str, Any] | None) -> list[tuple[str, int | None]]:
    assert frame is not None
    return [(os.path.basename(item["path"]), item.get("step")) for item in frame.get("items", [])]


@pytest.fixture(autouse=True)
def every_poll_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls follow each other faster here than a watch polls."""
    monkeypatch.setattr(checkpoint_search, "WALK_COST", 0.0)


def watch_of(folder: Path, **how: Any) -> CheckpointWatch:
    return CheckpointWatch("a", CheckpointSearch(str(folder), **how))


def test_the_list_is_sent_when_it_changes_and_only_then(tmp_path: Path) -> None:
    watch = watch_of(tmp_path)
    assert watch.poll_frame() is None
    publish(tmp_path / "checkpoints" / "step-00000320", 320)
    publish(tmp_path / "checkpoints" / "step-00000640-a3", 640)
    publish(tmp_path / "best", 320)
    frame = watch.poll_frame()
    assert sorted(listed(frame)) == [
        ("best", 320),
        ("step-00000320", 320),
        ("step-00000640-a3", 640),
    ]
    assert frame is not None
    assert {item["bytes"] for item in frame["items"]} == {len(MODEL) + 13}
    assert [item["path"] for item in frame["items"] if item.get("best")] == [str(tmp_path / "best")]
    assert watch.poll_frame() is None
    (tmp_path / "metrics.jsonl").write_text("x")
    assert watch.poll_frame() is None
    (tmp_path / "checkpoints" / "step-00000320").rename(tmp_path / ".old-1")
    assert sorted(listed(watch.poll_frame())) == [("best", 320), ("step-00000640-a3", 640)]


def test_a_file_that_is_written_over_is_a_newer_checkpoint(tmp_path: Path) -> None:
    """A script's own latest.pt: no directory changes when it is saved again."""
    path = tmp_path / "outputs" / "latest.pt"
    path.parent.mkdir()
    model = {"model": {"layer.weight": 1}}
    path.write_bytes(torch_file({**model, "step": 10}))
    settled(tmp_path)
    watch = watch_of(tmp_path)
    assert listed(watch.poll_frame()) == [("latest.pt", 10)]
    path.write_bytes(torch_file({**model, "step": 20}))
    frame = watch.poll_frame()
    assert listed(frame) == [("latest.pt", 20)]
    assert watch.newest_time == pytest.approx(path.stat().st_mtime, abs=0.01)


def test_what_is_being_written_is_shown_apart_until_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "ckpt_1000.pt"
    whole = torch_file({"model": {"layer.weight": 1}})
    path.write_bytes(whole[:3000])
    watch = watch_of(tmp_path)
    frame = watch.poll_frame()
    assert listed(frame) == []
    assert frame is not None
    assert [(item["step"], item["why"]) for item in frame["writing"]] == [
        (1000, "ckpt_1000.pt ends too early")
    ]
    path.write_bytes(whole)
    frame = watch.poll_frame()
    assert listed(frame) == [("ckpt_1000.pt", 1000)]
    assert frame is not None
    assert "writing" not in frame


def test_files_without_an_end_of_their_own_are_complete_once_they_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoint-500"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(MODEL)
    watch = watch_of(tmp_path)
    frame = watch.poll_frame()
    assert frame is not None
    assert [item["why"] for item in frame["writing"]] == ["it was written to a moment ago"]
    monkeypatch.setattr(checkpoint_search, "QUIET_S", -1.0)
    assert listed(watch.poll_frame()) == [("checkpoint-500", 500)]


def test_a_tree_that_a_link_leads_to_is_counted_once_and_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``checkpoints`` may be a link to another disk; one to ``/`` must not have all disks walked."""
    publish(tmp_path / "disk" / "step-3", 3)
    run = tmp_path / "run"
    run.mkdir()
    (run / "checkpoints").symlink_to(tmp_path / "disk")
    (run / "last").symlink_to(tmp_path / "disk" / "step-3")
    assert listed(watch_of(run).poll_frame()) == [("step-3", 3)]
    everything = tmp_path / "everything"
    for number in range(20):
        (everything / str(number)).mkdir(parents=True)
    (run / "all").symlink_to(everything)
    (run / "loop").symlink_to(run)
    monkeypatch.setattr(checkpoint_search, "MOST_BY_LINK", 8)
    search = CheckpointSearch(str(run))
    search.poll_checkpoints()
    assert search.cut


def test_only_what_a_cell_has_written_itself_counts_where_several_share_a_directory(
    tmp_path: Path,
) -> None:
    for name in ("lr1", "lr2"):
        (tmp_path / "outputs" / name).mkdir(parents=True)
        (tmp_path / "outputs" / name / "best.pt").write_bytes(
            torch_file({"model": {"layer.weight": 1}})
        )
    frame = watch_of(tmp_path, only="lr2").poll_frame()
    assert frame is not None
    assert [item["path"] for item in frame["items"]] == [str(tmp_path / "outputs/lr2/best.pt")]
    settled(tmp_path)
    assert watch_of(tmp_path, since=2e9).poll_frame() is None


def test_a_silent_log_beside_fresh_checkpoints_is_told_once_per_silence(tmp_path: Path) -> None:
    log, frozen = tmp_path / "a.log", FrozenLogs()
    assert frozen.check_log("a", str(log), 1e9) == []
    log.write_text("epoch 1\n")
    wrote = log.stat().st_mtime
    assert frozen.check_log("a", str(log), wrote + SILENT / 2) == []
    (event,) = frozen.check_log("a", str(log), wrote + 2 * SILENT)
    assert (event["kind"], event["text"][:3]) == ("log-frozen", "a: ")
    assert frozen.check_log("a", str(log), wrote + 3 * SILENT) == []
    os.utime(log, (wrote + 5, wrote + 5))
    assert len(frozen.check_log("a", str(log), wrote + 3 * SILENT)) == 1
