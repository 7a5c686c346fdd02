"""The steps of a stop, with a platform that answers: what is written before the call, and what is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box import files
from rgt_box.autostop import armed_plan, idle_clock, stop_process, story
from rgt_box.autostop.stop_process import StopAttempt, StopFailed, Withdrawn

from rgt_tui.demo import InjectedFault, LocalRequest, LocalResponse, LocalRunPod
from tests.process.box.harness import make_job
from tests.process.box.parking_box import KEY, POD, serving

ACTION, READ = f"POST /v2/pods/{POD}/action", f"GET /v2/pods/{POD}"


class Plane(LocalRunPod):
    """Remembers what stood on the box's disk when a stop came in."""

    folder: Path
    seen: list[tuple[str, str]]

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        if request.method == "POST":
            journal = json.loads((self.folder / "state/autostop-stop.json").read_text())
            kept = (self.folder / "volume/rgt-autostop.jsonl").read_text().splitlines()[-1]
            self.seen.append((journal["phase"], json.loads(kept)["event"]))
        return super().handle_request(request)


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plane]:
    for name, value in {
        "RUNPOD_API_KEY": KEY,
        "RUNPOD_POD_ID": POD,
        "RGT_AUTOSTOP_PACE": "0",
        "RGT_BOOT_ID": "b",
        "RGT_STATE_DIR": str(tmp_path / "state"),
        "RGT_RAM_DIR": str(tmp_path / "none"),
        "HOME": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stop_process, "ASK_EVERY", 0.0)
    (tmp_path / "volume").mkdir()
    (tmp_path / "state").mkdir()
    found = Plane(settle_s=0)
    found.folder, found.seen = tmp_path, []
    found.add_pod(POD, "lab")
    found.machine_keys[KEY] = POD
    with serving(found):
        yield found


def armed(plane: Plane, **changed: Any) -> dict[str, Any]:
    request = {
        "mode": "idle", "action": "park", "boot": "b", "instance": POD, "box": "lab",
        "stop": {"kind": "runpod", "url": plane.base_url}, "durable": [str(plane.folder / "volume")],
    }  # fmt: skip
    bound = armed_plan.bind_plan(
        armed_plan.parse_request(request | changed), idle_clock.read_clocks(), None
    )
    armed_plan.save_plans(str(plane.folder / "state"), {bound["mode"]: bound})
    return bound


def stop(plane: Plane, plan: dict[str, Any], looks: list[str] | None = None) -> StopAttempt:
    """A stop whose looks see an idle box, or, by turns, what they are told to see: this machine is never idle."""
    found = StopAttempt(str(plane.folder / "state"), plan)
    words = list(looks or [])

    def look() -> None:
        found._require_still_armed()
        if words and (word := words.pop(0)):
            raise Withdrawn(word)

    found._check_last_time = look  # type: ignore[method-assign]
    return found


def run(plane: Plane, plan: dict[str, Any], looks: list[str] | None = None) -> None:
    found = stop(plane, plan, looks)
    try:
        found.run_steps()
    finally:
        found.open_seal()


def events(plane: Plane) -> list[str]:
    return [line["event"] for line in story.read_events(str(plane.folder / "state"))]


def phase(plane: Plane) -> Any:
    return story.read_journal(str(plane.folder / "state")).get("phase")


def test_the_intent_is_on_both_disks_before_the_call_is_made(plane: Plane) -> None:
    run(plane, armed(plane))
    assert plane.seen == [("intent", "intent")]
    assert events(plane) == ["sealed", "mirrored", "intent", "answered", "answered"]
    assert phase(plane) == "off"


def test_what_the_last_look_sees_withdraws_it_before_the_intent(plane: Plane) -> None:
    for looks in (["busy"], ["", "busy"]):
        with pytest.raises(Withdrawn, match="busy"):
            run(plane, armed(plane), looks)
    assert plane.requests == []
    assert "intent" not in events(plane)


def test_each_try_looks_again_and_three_are_made(plane: Plane) -> None:
    plane.inject_faults(InjectedFault(on=ACTION, status=401, times=9))
    with pytest.raises(StopFailed, match="tried 3 times, and this box is still running"):
        run(plane, armed(plane))
    assert plane.requests == [ACTION] * 3
    assert events(plane)[2:] == ["intent", "refused"] * 3
    plane.requests.clear()
    with pytest.raises(Withdrawn, match="busy"):
        run(plane, armed(plane), ["", "", "busy"])
    assert plane.requests == [ACTION]


def test_a_refusal_that_a_reading_disproves_is_no_failure(plane: Plane) -> None:
    plane.inject_faults(InjectedFault(on=ACTION, act=True, status=500))
    run(plane, armed(plane))
    assert plane.requests == [ACTION, READ]


def test_a_yes_that_a_reading_disproves_is_asked_for_again(plane: Plane) -> None:
    plane.inject_faults(InjectedFault(on=ACTION, status=200, raw=b'{"status": "EXITED"}'))
    run(plane, armed(plane))
    assert plane.requests == [ACTION, READ, ACTION, READ]
    assert (
        "the box is still running: it is RUNNING"
        in [line["text"] for line in story.read_events(str(plane.folder / "state"))][4]
    )


def test_nothing_is_sent_again_while_nobody_knows(plane: Plane) -> None:
    plane.inject_faults(
        InjectedFault(on=ACTION, drop=True), InjectedFault(on=READ, status=503, times=-1)
    )
    with pytest.raises(StopFailed, match="is unknown; it is not sent again"):
        run(plane, armed(plane))
    assert plane.requests == [ACTION, READ]


@pytest.mark.parametrize("before", ["intent", "answered"])
def test_a_stop_that_was_killed_is_asked_for_and_nothing_else(plane: Plane, before: str) -> None:
    plan = armed(plane)
    folder = str(plane.folder / "state")
    armed_plan.store_json(folder, story.JOURNAL, {"id": plan["id"], "phase": before})
    with pytest.raises(Withdrawn, match="the stop was not carried out, and the box still runs"):
        run(plane, plan)
    assert plane.requests == [READ]
    armed_plan.store_json(folder, story.JOURNAL, {"id": plan["id"], "phase": before})
    plane.pods[POD].status = "EXITED"
    run(plane, plan)
    assert (plane.requests, phase(plane)) == ([READ, READ], "off")


def test_the_journal_of_another_plan_says_nothing_of_this_one(plane: Plane) -> None:
    armed_plan.store_json(
        str(plane.folder / "state"), story.JOURNAL, {"id": "old", "phase": "intent"}
    )
    run(plane, armed(plane))
    assert plane.requests == [ACTION, READ]


def test_an_intent_that_cannot_be_written_is_not_acted_upon(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = armed(plane)

    def full(folder: str, name: str, value: Any) -> None:
        raise armed_plan.PlanNotStored("No space left on device")

    monkeypatch.setattr(armed_plan, "store_json", full)
    with pytest.raises(StopFailed, match="the intent cannot be recorded: No space left"):
        run(plane, plan)
    assert plane.requests == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: {}, "no longer armed"),
        (lambda plan: {"idle": plan | {"id": "another"}}, "no longer armed"),
        (lambda plan: {"idle": plan | {"kept_until_boot": 1e12}}, "put off"),
    ],
)
def test_who_takes_it_back_or_puts_it_off_is_heard(plane: Plane, change: Any, words: str) -> None:
    plan = armed(plane)
    armed_plan.save_plans(str(plane.folder / "state"), change(plan))
    with pytest.raises(Withdrawn, match=words):
        run(plane, plan)
    assert plane.requests == []


def test_another_boot_or_key_ends_it_at_once(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = armed(plane)
    monkeypatch.setenv("RUNPOD_POD_ID", "another")
    with pytest.raises(StopFailed, match="reports that it is another, not k3v9q0x1fake01"):
        run(plane, plan)
    monkeypatch.setenv("RGT_BOOT_ID", "c")
    with pytest.raises(Withdrawn, match="rebooted"):
        run(plane, plan)
    assert (plane.requests, events(plane)) == ([], [])


def test_the_queues_are_held_meanwhile_and_let_go_at_the_end(plane: Plane) -> None:
    job = make_job(plane.folder / "job", ["true"], ["a"])
    found = stop(plane, armed(plane, jobs=[str(job)]), ["", "busy"])
    with pytest.raises(Withdrawn):
        found.run_steps()
    held = [str(job / "runner.lock"), str(plane.folder / "state/seal.lock")]
    assert [files.is_locked(path) for path in held] == [True, True]
    found.open_seal()
    assert [files.is_locked(path) for path in held] == [False, False]
    runner = files.FileLock(held[0])
    assert runner.acquire()
    with pytest.raises(Withdrawn, match="is already active"):
        run(plane, armed(plane, jobs=[str(job)]))
    assert plane.requests == []


def test_results_go_where_they_survive_and_what_cannot_go_keeps_the_box(plane: Plane) -> None:
    job = make_job(plane.folder / "job", ["true"], ["a"])
    (job / "out/a").mkdir(parents=True)
    (job / "out/a/m.jsonl").write_text("1")
    (job / "out/a/link").symlink_to("/etc/hostname")
    run(plane, armed(plane, jobs=[str(job)]))
    kept = plane.folder / "volume/rgt-autostop" / str(job).lstrip("/")
    assert (kept / "out/a/m.jsonl").read_text() == "1"
    assert (kept / "queue.txt").exists()
    inside = make_job(plane.folder / "volume/job", ["true"], ["a"])
    run(plane, armed(plane, jobs=[str(inside)]))
    assert (
        "is on storage that survives a stop"
        in story.read_events(str(plane.folder / "state"))[-4]["text"]
    )
    (kept / "out/a/m.jsonl").unlink()
    (kept / "out/a/m.jsonl").mkdir()
    (kept / "out/a/m.jsonl/x").write_text("in the way")
    plane.requests.clear()
    with pytest.raises(StopFailed, match="results could not be saved"):
        run(plane, armed(plane, jobs=[str(job)]))
    assert plane.requests == []


def test_only_one_at_a_time_and_only_what_may_park(plane: Plane) -> None:
    folder = str(plane.folder / "state")
    armed(plane, action="ask")
    assert stop_process.run_stop_attempt(folder, "idle") == 1
    assert stop_process.run_stop_attempt(folder, "lease") == 1
    held = files.FileLock(str(plane.folder / "state/autostop-stop.lock"))
    assert held.acquire()
    armed(plane)
    assert (stop_process.run_stop_attempt(folder, "idle"), story.is_at_work(folder)) == (3, True)
    assert plane.requests == []
