"""What the recorder does with what is armed: count, warn, start one stop, and draw the conclusion of its end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from rgt_box.autostop import armed_plan, idle_clock, saving, story, watchman, work_signs
from rgt_box.autostop.idle_clock import ClockReading
from rgt_box.autostop.watchman import AutostopMonitor
from rgt_box.recorder import control

from tests.process.box.harness import PATIENCE

QUIET: dict[str, Any] = {"transfers": [], "input_at": 0.0}
WORK = {"active": ["x works"], "unknown": [], "processes": []}
BLIND = {"active": [], "unknown": ["y is hidden"], "processes": []}
IDLE: dict[str, Any] = {"active": [], "unknown": [], "processes": []}


class Box:
    """A recorder's watchman with a clock, and signs, that a test sets."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = str(folder)
        self.boot, self.asleep, self.ahead = 1000.0, 0.0, 0.0
        self.signs = dict(IDLE)
        self.events: list[str] = []
        self.started: list[str] = []
        monkeypatch.setattr(idle_clock, "read_clocks", self.now)
        monkeypatch.setattr(work_signs.WorkSigns, "read_signs", lambda *_: dict(self.signs))
        monkeypatch.setattr(control, "start_detached", lambda words: self.started.append(words[-1]))
        monkeypatch.setattr(story, "write_to_terminals", lambda _: 0)
        monkeypatch.setattr(watchman, "RUNS_WAIT", PATIENCE)
        self.watchman = self.recorder()

    def recorder(self) -> AutostopMonitor:
        self.watchman = AutostopMonitor(
            self.folder, lambda kind, text, level: self.events.append(kind)
        )
        return self.watchman

    def now(self) -> ClockReading:
        return ClockReading(self.boot, self.boot - self.asleep, self.boot + self.ahead)

    def arm(self, mode: str = "idle", **changed: Any) -> dict[str, Any]:
        request = {
            "mode": mode, "action": "park", "boot": "b", "instance": "i", "box": "lab", "idle_s": 100.0,
            "lease_s": 1000.0, "warn_s": 20.0, "stop": {"kind": "runpod"}, "durable": ["/v"],
        }  # fmt: skip
        bound = armed_plan.bind_plan(armed_plan.parse_request(request | changed), self.now(), None)
        armed_plan.save_plans(
            self.folder, dict(armed_plan.load_plans(self.folder), **{mode: bound})
        )
        return bound

    def tick(self, seconds: float = 0.0, sample: dict[str, Any] | None = None) -> dict[str, Any]:
        """Let time go by, a second at a time; returns the last fields of a sample."""
        found: dict[str, Any] = {}
        end = self.boot + seconds
        while True:
            found = self.watchman.tick(QUIET | (sample or {}), None)  # type: ignore[arg-type]
            if self.boot >= end:
                return found
            self.boot += 1.0

    def journal(self, plan: dict[str, Any], phase: str) -> None:
        armed_plan.store_json(self.folder, story.JOURNAL, {"id": plan["id"], "phase": phase})

    def told(self) -> list[str]:
        return [line["event"] for line in story.read_events(self.folder)]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    monkeypatch.setenv("RGT_BOOT_ID", "b")
    monkeypatch.setenv("RGT_RAM_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("RGT_AUTOSTOP_PACE", "1")
    (tmp_path / "state").mkdir()
    return Box(tmp_path / "state", monkeypatch)


def test_where_nothing_is_armed_it_does_nothing(box: Box) -> None:
    assert (box.watchman.has_plans, box.tick(5), box.watchman.extend_config({"interval": 60})) == (
        False,
        {},
        {"interval": 60},
    )


def test_it_warns_and_starts_one_stop(box: Box) -> None:
    box.arm()
    assert box.tick()["autostop"]["state"] == "armed"
    assert box.tick(79)["autostop"]["stops_in_s"] == 21
    assert box.told() == []
    assert box.tick(1)["autostop"]["state"] == "warned"
    assert (box.told(), box.events, box.started) == (["warned"], ["autostop-warned"], [])
    assert box.tick(19)["autostop"]["stops_in_s"] == 1
    assert box.started == []
    assert box.tick(1)["autostop"]["state"] == "stopping"
    box.tick(10)
    assert box.started == ["idle"]


@pytest.mark.parametrize("signs", [WORK, BLIND])
def test_work_and_blindness_withdraw_it(box: Box, signs: dict[str, Any]) -> None:
    box.arm()
    box.tick(90)
    box.signs = dict(signs)
    found = box.tick(10)["autostop"]
    assert (found["state"], found["stops_in_s"], box.told()) == (
        "armed",
        None,
        ["warned", "withdrawn"],
    )
    assert found["idle_s"] == (0.0 if signs is WORK else None)
    box.signs = dict(IDLE)
    box.tick(80)
    assert box.told() == ["warned", "withdrawn"]
    box.tick(25)
    assert (box.told()[2:], box.started) == (["warned"], [])
    box.tick(20)
    assert box.started == ["idle"]


def test_a_card_that_works_for_a_second_has_worked(box: Box) -> None:
    box.arm()
    box.tick(55)
    busy = {"gpus": [{"index": 0, "util": 50.0, "vram_used": 1}]}
    assert box.tick(0, busy)["autostop"]["idle_s"] == 0
    assert box.tick(4)["autostop"]["why"] == ["GPU 0 is busy: 50%"]
    box.tick(60)
    assert box.told() == []


def test_a_sample_that_comes_a_little_early_is_looked_at_and_not_only_the_next(box: Box) -> None:
    box.arm()
    assert box.watchman.extend_config({"interval": 60.0})["interval"] == 10.0
    box.tick()
    box.signs = dict(WORK)
    box.boot += 9.9
    assert box.tick()["autostop"]["why"] == ["x works"]


def test_blind_for_longer_than_the_limit_is_told_once(box: Box) -> None:
    box.arm()
    box.signs = dict(BLIND)
    box.tick(99)
    assert box.told() == []
    box.tick(300)
    assert (box.told(), box.events) == (["unknown"], ["autostop-unknown"])
    box.signs = dict(WORK)
    box.tick(10)
    box.signs = dict(BLIND)
    box.tick(150)
    assert box.told() == ["unknown", "unknown"]


@pytest.mark.parametrize(
    "change",
    [
        {"boot": 1110.0},
        {"asleep": 10.0},
        {"ahead": 10.0},
        {"ahead": -10.0},
    ],
)
def test_a_break_in_a_clock_begins_the_time_anew(box: Box, change: dict[str, float]) -> None:
    box.arm()
    box.tick(60)
    for name, value in change.items():
        setattr(box, name, value)
    assert box.tick(10)["autostop"]["idle_s"] <= 10
    box.tick(60)
    assert (box.told(), box.started) == ([], [])


def test_another_boot_or_a_resumed_machine_disarms_it(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.arm()
    box.arm("lease")
    box.tick(10)
    box.asleep = 61.0
    assert box.tick(10) == {}
    assert (box.told(), box.events) == (["disarmed"] * 2, ["autostop-disarmed"] * 2)
    assert armed_plan.load_plans(box.folder) == {}
    box.arm()
    monkeypatch.setenv("RGT_BOOT_ID", "c")
    box.recorder()
    assert box.tick() == {}
    assert "was rebooted" in story.read_events(box.folder)[-1]["text"]


def test_a_new_recorder_counts_anew_and_keeps_the_end_of_a_lease(box: Box) -> None:
    box.arm()
    box.arm("lease")
    box.tick(60)
    box.recorder()
    found = box.tick(5)
    assert found["autostop"]["idle_s"] == 5
    assert found["lease"]["stops_in_s"] == 935
    box.signs = dict(WORK)
    box.tick(914)
    assert box.told() == []
    box.tick(2)
    assert (box.told(), box.started) == (["warned"], [])
    box.tick(20)
    assert box.started == ["lease"]


def test_a_lease_that_ended_while_no_recorder_ran_is_warned_of_first(box: Box) -> None:
    box.arm("lease")
    box.boot += 5000
    box.recorder()
    box.tick(19)
    assert (box.told(), box.started) == (["warned"], [])
    box.tick(1)
    assert box.started == ["lease"]


def test_who_only_asks_asks_once_and_stops_nothing(box: Box) -> None:
    box.arm(action="ask", stop=None)
    box.tick(200)
    assert (box.told(), box.started) == (["warned", "asked"], [])
    assert box.tick()["autostop"]["state"] == "warned"


@pytest.mark.parametrize(
    ("phase", "state", "told"),
    [
        ("failed", "failed", []),
        ("withdrawn", "armed", []),
        ("off", "failed", []),
        ("sealed", "failed", ["failed"]),
    ],
)
def test_a_stop_that_has_ended_begins_the_time_anew(
    box: Box, phase: str, state: str, told: list[str]
) -> None:
    plan = box.arm()
    box.tick(100)
    box.journal(plan, phase)
    found = box.tick(16)["autostop"]
    assert (found["state"], box.told()[1:], box.started) == (state, told, ["idle"])
    assert found["idle_s"] <= 16
    assert story.read_journal(box.folder) == {}
    box.tick(110)
    if state == "failed":  # what fails once is not tried again at once
        assert box.started == ["idle"]
        box.tick(idle_clock.retry_after(1))
    assert box.started == ["idle", "idle"]


def test_one_whose_process_never_came_is_told(box: Box) -> None:
    box.arm()
    box.tick(100)
    assert box.tick(14)["autostop"]["state"] == "stopping"
    assert box.tick(1)["autostop"]["state"] == "failed"
    assert box.told() == ["warned", "failed"]


@pytest.mark.parametrize("phase", ["intent", "answered"])
def test_one_that_was_killed_after_its_intent_is_asked_for_at_once(box: Box, phase: str) -> None:
    """By a recorder that starts, too, and whatever the box does now."""
    box.journal(box.arm(), phase)
    box.signs = dict(WORK)
    box.recorder()
    assert box.tick()["autostop"]["state"] == "stopping"
    assert box.started == ["idle"]
    box.tick(14)
    assert box.started == ["idle"]
    box.tick(1)
    assert box.started == ["idle", "idle"]


def test_keep_is_heard(box: Box) -> None:
    plan = box.arm()
    box.tick(85)
    armed_plan.save_plans(
        box.folder, {"idle": plan | {"kept_until_boot": box.boot + 500, "kept_until": 5.0}}
    )
    found = box.tick(1)["autostop"]
    assert (found["state"], found["kept_until"], found["stops_in_s"]) == ("armed", 5.0, 499)
    assert box.told() == ["warned", "withdrawn"]
    box.tick(400)
    assert box.started == []


def test_a_lease_is_not_begun_again_while_a_run_that_loses_work_holds_it(box: Box) -> None:
    run = {
        "pid": 5, "ticks": 1, "name": "train", "run": "train", "cpu_pct": 50.0, "works": True, "rss": 1, "vram": False,
        "notebook": False, "cmd": "train",
    }  # fmt: skip
    plan = box.arm("lease")
    box.signs = WORK | {"processes": [run]}
    box.tick(1000)
    assert box.started == ["lease"]
    box.journal(plan, "failed")
    found = box.tick(700)["lease"]
    assert (found["state"], found["unsaving"], box.started) == ("failed", ["train"], ["lease"])
    box.signs = dict(IDLE)
    box.tick(40)
    assert box.started == ["lease", "lease"]


def test_what_goes_wrong_costs_neither_the_sample_nor_a_working_box(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.arm()
    box.tick(99)

    def broken(*_: Any) -> Any:
        raise ValueError("odd")

    monkeypatch.setattr(work_signs.WorkSigns, "read_signs", broken)
    box.tick(30)
    assert (box.started, box.events.count("autostop-unknown")) == ([], 1)


def test_runs_whose_files_hang_hold_up_neither_the_sample_nor_the_end_of_a_lease(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of them stays as it was: the process that stops the box looks anew."""
    gate = threading.Event()
    runs = [saving.SavingRun("lm", 7, 7, False, False, ())]
    monkeypatch.setattr(saving, "list_saving_runs", lambda *_: gate.wait() and runs)
    monkeypatch.setattr(watchman, "RUNS_WAIT", 0.0)
    box.arm("lease")
    assert box.tick(979)["lease"]["stops_in_s"] == 21
    assert box.told() == []
    gate.set()
    monkeypatch.setattr(watchman, "RUNS_WAIT", PATIENCE)
    box.tick(1)
    assert "lm" in story.read_events(box.folder)[0]["text"]
    gate.clear()
    monkeypatch.setattr(watchman, "RUNS_WAIT", 0.0)
    box.tick(30)
    gate.set()
    assert (box.started, box.events) == (["lease"], ["autostop-warned"])


def test_an_armed_box_is_looked_at_whoever_watches(box: Box) -> None:
    box.arm(jobs=["/j"], mounts=["/m"], pattern="mine")
    wide = box.watchman.extend_config(
        {"interval": 3600.0, "jobs": ["/k"], "mounts": [], "pattern": None, "find": False}
    )
    assert wide == {
        "interval": 10.0,
        "jobs": ["/k", "/j"],
        "mounts": ["/m"],
        "pattern": "mine",
        "find": True,
    }
    assert box.watchman.extend_config({"interval": 1.0, "pattern": "theirs"})["pattern"] == "theirs"
