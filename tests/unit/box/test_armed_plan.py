"""What was armed: checked, bound to one boot and box, and kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rgt_box import procstat
from rgt_box.autostop import armed_plan, story
from rgt_box.autostop.armed_plan import (
    WrongRequest,
    bind_plan,
    load_plans,
    parse_duration,
    parse_request,
    save_plans,
    why_void,
)
from rgt_box.autostop.idle_clock import ClockReading, read_clocks

REQUEST: dict[str, Any] = {
    "mode": "idle",
    "action": "park",
    "boot": "b",
    "instance": "i",
    "box": "lab",
    "stop": {"kind": "runpod", "url": ""},
}


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGT_BOOT_ID", "b")


def test_a_request_gets_every_field() -> None:
    found = parse_request(REQUEST)
    assert (found["idle_s"], found["warn_s"], found["inspect_s"], found["jobs"]) == (
        2700.0,
        600.0,
        0.0,
        [],
    )
    assert found["stop"] == {"kind": "runpod", "url": "", "command": [], "marks": []}
    assert parse_request(REQUEST | {"action": "ask", "stop": None})["stop"] is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mode": "both"}, "mode must be one of idle, lease"),
        ({"action": "destroy"}, "action must be one of park, ask"),
        ({"idle_s": 0}, "idle_s must be more than 0"),
        ({"mode": "lease", "lease_s": 0}, "lease_s must be more than 0"),
        ({"idle_s": -1}, "idle_s must be seconds"),
        ({"idle_s": True}, "idle_s must be seconds"),
        ({"warn_s": float("nan")}, "warn_s must be seconds"),
        ({"idle_s": "45m"}, "idle_s must be seconds"),
        ({"idle_s": 1e12}, "idle_s must be seconds"),
        ({"jobs": "x"}, "jobs must be a list"),
        ({"results": [1]}, "results must be a list"),
        ({"ignore": ["a\0"]}, "ignore must be a list"),
        ({"durable": ["volume"]}, "durable must contain absolute paths"),
        ({"boot": ""}, "boot is missing"),
        ({"instance": None}, "instance is missing"),
        ({"pattern": "("}, "pattern: "),
        ({"pattern": 5}, "pattern: "),
        ({"stop": None}, "only the action ask needs none"),
        ({"stop": {"kind": "aws"}}, "stop.kind must be one of"),
        ({"stop": {"kind": "command", "command": "x"}}, "stop.command must be a list"),
        ({"stop": {"kind": "runpod", "url": 5}}, "stop.url must be a string"),
        ({"accept_holders": [{"pid": 1}]}, "accept_holders must contain"),
        ({"accept_holders": 5}, "accept_holders must contain"),
    ],
)
def test_what_makes_no_sense_is_told_by_its_field(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongRequest, match=words.replace("(", "\\(")):
        parse_request(REQUEST | changed)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7200", 7200), ("90m", 5400), ("2h", 7200), ("1.5h", 5400), ("1d", 86400)],
)
def test_a_time(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1", "2 weeks", "inf", "9999d", "h"])
def test_no_time(text: str) -> None:
    with pytest.raises(WrongRequest, match="is not a duration"):
        parse_duration(text)


@pytest.mark.usefixtures("boot")
def test_a_process_is_accepted_by_pid_and_start() -> None:
    own = procstat.boot_time() + (procstat.start_ticks(os.getpid()) or 0) / procstat.CLOCK_TICKS
    asked = [
        {"pid": os.getpid(), "started": own},
        {"pid": os.getpid(), "started": own - 5},
        {"pid": 1 << 22, "started": 1},
    ]
    bound = bind_plan(parse_request(REQUEST | {"accept_holders": asked}), read_clocks(), None)
    assert bound["identity"] == armed_plan.own_identity()
    assert isinstance(bound["identity"], dict)
    assert bound["accepted"] == [[os.getpid(), procstat.start_ticks(os.getpid())]]


@pytest.mark.usefixtures("boot")
def test_it_holds_for_this_boot_box_and_wakefulness_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    at = ClockReading(1000.0, 990.0, 5.0)
    bound = bind_plan(parse_request(REQUEST), at, None) | {"identity": {"RUNPOD_POD_ID": "p1"}}
    monkeypatch.setattr(armed_plan, "own_identity", lambda: {"RUNPOD_POD_ID": "p1", "pod_uid": "x"})
    assert why_void(bound, at) == ""
    assert why_void(bound, ClockReading(5000.0, 4931.0, 5.0)) == ""
    assert "suspended for 60 s" in why_void(bound, ClockReading(5000.0, 4930.0, 5.0))
    assert "suspended" in why_void(bound, ClockReading(5000.0, 5060.0, 5.0))
    monkeypatch.setattr(armed_plan, "own_identity", lambda: {"RUNPOD_POD_ID": "p2"})
    assert (
        why_void(bound, at) == "this is not the box that was armed: RUNPOD_POD_ID is p2, and was p1"
    )
    monkeypatch.setattr(armed_plan, "own_identity", dict)
    assert why_void(bound, at) == ""  # a box that says nothing says nothing else either
    monkeypatch.setenv("RGT_BOOT_ID", "c")
    assert "was rebooted" in why_void(bound, at)


@pytest.mark.usefixtures("boot")
def test_it_is_kept_and_an_edited_file_arms_nothing(tmp_path: Path) -> None:
    bound = bind_plan(
        parse_request(REQUEST), read_clocks(), {"proved": True, "text": "x", "at": 1.0}
    )
    save_plans(str(tmp_path), {"idle": bound})
    assert load_plans(str(tmp_path)) == {"idle": bound}
    file = tmp_path / "autostop.json"
    assert file.stat().st_mode & 0o777 == 0o600
    for wrong in (
        {"idle_s": "soon"}, {"armed_boot": None}, {"accepted": [[1]]}, {"accepted": [["1", 2]]}, {"mode": "lease"},
        {"kept_until_boot": "x"}, {"stop": {"kind": "?"}}, {"slept": None}, {"action": "destroy"},
    ):  # fmt: skip
        file.write_text(json.dumps({"idle": bound | wrong}))
        assert load_plans(str(tmp_path)) == {}, wrong
    file.write_text(json.dumps({"idle": bound, "lease": bound, "other": 5}))
    assert list(load_plans(str(tmp_path))) == ["idle"]
    for text in ("", "[]", "{", '{"idle": 5}'):
        file.write_text(text)
        assert load_plans(str(tmp_path)) == {}


def test_two_do_not_change_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(armed_plan, "LOCK_WAIT", 0.0)
    with (
        armed_plan.PlanLock(str(tmp_path)),
        pytest.raises(armed_plan.PlanNotStored, match="another rgt"),
    ):
        armed_plan.PlanLock(str(tmp_path)).__enter__()
    with armed_plan.PlanLock(str(tmp_path)):
        pass


def no_room(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.usefixtures("boot")
@pytest.mark.parametrize("why", ["too large", "no room"])
def test_a_log_that_cannot_be_shortened_now_keeps_its_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    folder = str(tmp_path)
    monkeypatch.setattr(story, "MOST", 1)
    if why == "too large":
        monkeypatch.setattr(story, "READ", 1)
    else:
        monkeypatch.setattr("rgt_box.files.replace_file", no_room)
    for text in ("a", "b"):
        assert story.append_event(folder, "kept", text)
    monkeypatch.undo()
    assert [line["text"] for line in story.read_events(folder)] == ["a", "b"]


@pytest.mark.usefixtures("boot")
def test_the_story_is_bounded_and_its_tail_tells_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    monkeypatch.setattr(story, "MOST", 3000)
    monkeypatch.setattr(
        "rgt_box.autostop.story.time", SimpleNamespace(time=lambda: 1000.0)
    )  # many lines within one tick of the clock
    assert story.append_event(folder, "armed", "before")
    tail = story.EventTail(folder)
    assert tail.new_events() == []
    seen: list[str] = []
    for number in range(60):
        assert story.append_event(folder, "kept", str(number))
        seen += [str(line["text"]) for line in tail.new_events()]
    assert seen == [str(number) for number in range(60)]
    assert (tmp_path / "autostop.jsonl").stat().st_size < 3200
    last = story.last_event(folder)
    assert last is not None
    assert (last["event"], last["text"], set(last)) == ("kept", "59", {"at", "event", "text"})
    (tmp_path / "a").mkdir()
    assert story.copy_event_log(folder, [str(tmp_path / "a"), str(tmp_path / "none")]) == [
        f"{tmp_path}/none: No such file or directory"
    ]
    assert (tmp_path / "a" / "rgt-autostop.jsonl").read_bytes().count(b"\n") == len(
        story.read_events(folder)
    )
