"""The small file: atomic, merged, bounded, and a damaged one is set aside."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import stat
from pathlib import Path

import msgspec
import pytest

from rgt_tui import files
from rgt_tui.health import (
    KEEP_S,
    AlertMute,
    BoxAlertNotes,
    SentAlert,
    StoredAlerts,
    alerts_path,
    load_alerts,
    put_mute,
    update_alerts,
)
from rgt_tui.model import Alert, MachineLife

NOW = 1_790_000_000.0
replace = msgspec.structs.replace


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state" / "alerts.json"
    alert = Alert("inodes:/data", "warn", "97%", since=NOW)
    whole = StoredAlerts(
        mutes=put_mute((), "a@h", "inodes", None, NOW),
        boxes={"a@h": BoxAlertNotes((alert,), MachineLife(existed=True, asked="park"), NOW)},
        told={"phone": {"a@h inodes:/data": SentAlert("warn", NOW)}},
    )
    assert load_alerts(path) == StoredAlerts()
    assert update_alerts(path, lambda _: whole, NOW) == whole
    assert load_alerts(path) == whole
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(item.name for item in path.parent.iterdir()) == [
        "alerts.json",
        "alerts.json.lock",
    ]


EARLIER = """{"version": 1,
 "mutes": [{"box": "a@h", "what": "inodes:/w", "until": 1790003600.0, "at": 1790000000.0}],
 "boxes": {"a@h": {
  "alerts": [{"id": "inodes:/w", "level": "error", "text": "/w 100%", "word": "inodes", "since": 1789999000.0, "muted": false}],
  "past": {"existed": true, "ran": true, "asked": "park", "rested": false, "stopped_at": null},
  "at": 1790000000.0, "covered": ["bytes:/w"]}},
 "told": {"pager": {"a@h inodes:/w": {"level": "error", "at": 1789999100.0, "over": false},
  "a@h memory": {"level": "warn", "at": 1789999200.0, "over": true}}}}"""  # noqa: E501
"""As rgt wrote it before alerts, triage and lifecycle were one package."""


def test_the_file_of_an_earlier_rgt_is_read(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    path.write_text(EARLIER)
    alert = Alert("inodes:/w", "error", "/w 100%", word="inodes", since=1789999000.0)
    past = MachineLife(existed=True, ran=True, asked="park")
    assert load_alerts(path) == StoredAlerts(
        mutes=(AlertMute("a@h", "inodes:/w", 1790003600.0, 1790000000.0),),
        boxes={"a@h": BoxAlertNotes((alert,), past, 1790000000.0, ("bytes:/w",))},
        told={
            "pager": {
                "a@h inodes:/w": SentAlert("error", 1789999100.0),
                "a@h memory": SentAlert("warn", 1789999200.0, over=True),
            }
        },
    )


@pytest.mark.parametrize("text", ["", "{", '{"mutes": 5}', "\xff", "[" * 100_000])
def test_a_damaged_file_is_set_aside(tmp_path: Path, text: str) -> None:
    path = tmp_path / "alerts.json"
    path.write_text(text, encoding="latin-1")
    assert load_alerts(path) == StoredAlerts()
    assert path.with_name("alerts.json.damaged").read_text(encoding="latin-1") == text


def test_what_a_later_rgt_adds_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    path.write_text('{"version": 1, "new": [1], "mutes": []}')
    assert load_alerts(path) == StoredAlerts()


def test_the_file_of_a_newer_rgt_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    path.write_text('{"version": 2, "mutes": {"of": "another shape"}}')
    with pytest.raises(OSError, match="written by a newer rgt"):
        update_alerts(path, lambda stored: replace(stored, told={"phone": {}}), NOW)
    assert path.read_text() == '{"version": 2, "mutes": {"of": "another shape"}}'
    assert not path.with_name("alerts.json.damaged").exists()


def test_a_lock_that_is_not_let_go_of_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_S", 0.0)
    path = tmp_path / "alerts.json"
    with path.with_name("alerts.json.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another rgt has held"):
            update_alerts(path, lambda stored: stored, NOW)
    assert update_alerts(path, lambda stored: stored, NOW) == StoredAlerts()


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        update_alerts(tmp_path / "file" / "alerts.json", lambda stored: stored, NOW)


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "alerts.json"
    kept = update_alerts(path, lambda _: StoredAlerts(mutes=put_mute((), "a", "x", 9, NOW)), NOW)

    def broken(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError):
        update_alerts(path, lambda _: StoredAlerts(version=3), NOW)
    assert load_alerts(path) == kept
    assert len(list(tmp_path.iterdir())) == 2


def test_boxes_that_are_no_more_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    old, new = BoxAlertNotes(at=NOW - KEEP_S - 1), BoxAlertNotes(at=NOW)
    told = {"s": {"old x": SentAlert("warn", NOW - KEEP_S - 1), "new x": SentAlert("warn", NOW)}}
    update_alerts(path, lambda _: StoredAlerts(boxes={"old": old, "new": new}, told=told), NOW)
    found = load_alerts(path)
    assert (list(found.boxes), list(found.told["s"])) == (["new"], ["new x"])


def add(path: Path, box: str, count: int) -> None:
    files.LOCK_S = 600.0  # whoever has the lock may be held up itself
    for number in range(count):

        def one(stored: StoredAlerts, what: str = f"kind-{number}") -> StoredAlerts:
            return replace(stored, mutes=put_mute(stored.mutes, box, what, None, NOW))

        update_alerts(path, one, NOW)


def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=add, args=(path, box, 20)) for box in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(load_alerts(path).mutes) == 40


@pytest.mark.parametrize(
    ("state", "below"), [("/var/state", "/var/state"), ("relative", None), ("", None)]
)
def test_where_it_is(state: str, below: str | None) -> None:
    base = Path(below) if below else Path.home() / ".local/state"
    assert alerts_path({"XDG_STATE_HOME": state}) == base / "rgt" / "alerts.json"
