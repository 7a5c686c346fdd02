"""The line of the last event: what is said, and what is not."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.fleet import events_between
from rgt_tui.health import assess_box
from rgt_tui.model import (
    Alert,
    BoxSpec,
    BoxState,
    DiskReading,
    Finding,
    Hello,
    Lifecycle,
    LinkState,
    MachineLife,
    Meter,
    MeterKind,
    QueueCell,
    QueueState,
    RunResume,
    RunState,
    Sample,
    Severity,
    StreamCounters,
)

BASE = BoxState(spec=BoxSpec(name="a", host="h"), since=100.0)
FINDING = Finding(
    gotcha="U7",
    title="No space",
    severity=Severity.FATAL,
    resource="inodes of /w",
    evidence="e",
    where="w",
)


def texts(old: BoxState, **changes: object) -> list[str]:
    return [
        event.text for event in events_between(old, msgspec.structs.replace(old, **changes), 200.0)
    ]


def queue(state: str, **fields: object) -> tuple[QueueState, ...]:
    cell = QueueCell(name="c", cfg="c", task="t", state=state, **fields)  # type: ignore[arg-type]
    return (QueueState(path="/q", at=1.0, cells=(cell,)),)


def test_a_first_connection_and_a_return_are_told_apart() -> None:
    assert texts(BASE, link=LinkState.LIVE, since=103.0, counters=StreamCounters(connects=1)) == [
        "connected"
    ]
    away = msgspec.structs.replace(BASE, link=LinkState.UNREACHABLE)
    assert texts(away, link=LinkState.LIVE, since=109.0, counters=StreamCounters(connects=2)) == [
        "back after 9s"
    ]
    # It was silent for 26 s before the client declared it lost at 100: 35 s without data, not 9.
    silent = msgspec.structs.replace(away, sample_at=74.0)
    assert texts(silent, link=LinkState.LIVE, since=109.0, counters=StreamCounters(connects=2)) == [
        "back after 35s"
    ]


def test_unreachable_says_who_says_so() -> None:
    assert texts(BASE, link=LinkState.UNREACHABLE, reason="ssh: refused") == [
        "unreachable: ssh: refused"
    ]


def test_a_refusal_a_question_and_a_pause_are_said_in_their_own_words() -> None:
    for link in (
        LinkState.REFUSED_KEY,
        LinkState.REFUSED_LOGIN,
        LinkState.ASKING,
        LinkState.PAUSED,
    ):
        assert texts(BASE, link=link, reason="words {0}") == ["words {0}"]


def test_after_a_pause_a_box_is_connected_not_back_after_a_moment() -> None:
    paused = msgspec.structs.replace(
        BASE, link=LinkState.CONNECTING, counters=StreamCounters(connects=4)
    )
    assert texts(paused, link=LinkState.LIVE, since=109.0, counters=StreamCounters(connects=5)) == [
        "connected"
    ]


def test_the_fleet_file_s_own_price_is_no_word_of_a_provider() -> None:
    known = msgspec.structs.replace(
        BASE, meter=Meter(lifecycle=Lifecycle.RUNNING, at=1.0, source="fleet file")
    )
    assert texts(known, meter=Meter(source="fleet file", at=2.0)) == []


def test_cells_tell_their_changes_but_not_their_first_sight() -> None:
    assert texts(BASE, queues=queue("running")) == []
    waiting = msgspec.structs.replace(BASE, queues=queue("waiting"))
    assert texts(waiting, queues=queue("running", attempts=2)) == ["c started, attempt 2"]
    assert texts(waiting, queues=queue("done", durable="verified")) == [
        "c done, copy on the durable disk verified"
    ]
    assert texts(waiting, queues=queue("failed", reason="exit 1")) == ["c failed: exit 1"]


def test_resumes_findings_and_the_meter_are_events() -> None:
    run = RunState(name="r", resumes=(RunResume(step=320, reason="killed", index=3),))
    assert texts(BASE, runs=(run,)) == ["r resumed from step 320 (killed)"]
    assert texts(BASE, findings=(FINDING,)) == ["U7 No space: inodes of /w"]
    found = msgspec.structs.replace(BASE, findings=(FINDING,))
    assert texts(found, findings=()) == ["inodes of /w: no longer a problem: No space (U7)"]
    named = msgspec.structs.replace(FINDING, run="a")
    assert texts(found, findings=(named,)) == [], "a log has told whose it is"
    both = msgspec.structs.replace(BASE, findings=(named,))
    another = msgspec.structs.replace(FINDING, run="b")
    assert texts(both, findings=(named, another)) == ["U7 No space: inodes of /w (b)"]
    assert texts(both, findings=(another,)) == [
        "U7 No space: inodes of /w (b)",
        "a: no longer a problem: No space (U7)",
    ]
    running = msgspec.structs.replace(BASE, meter=Meter(lifecycle=Lifecycle.RUNNING, at=1.0))
    assert texts(running, meter=Meter(lifecycle=Lifecycle.STOPPED, at=2.0)) == [
        "provider says stopped: unknown what still bills"
    ]


def test_what_the_person_asked_for_is_no_warning_and_names_what_still_bills() -> None:
    running = msgspec.structs.replace(
        BASE, meter=Meter(lifecycle=Lifecycle.RUNNING, at=1.0), life=MachineLife(asked="destroy")
    )
    gone = Meter(lifecycle=Lifecycle.GONE, kind=MeterKind.STORAGE_ONLY, at=2.0)
    (event,) = events_between(running, msgspec.structs.replace(running, meter=gone), 5.0)
    assert (event.text, event.level) == ("destroyed, as you asked: storage still bills", "info")
    by_others = msgspec.structs.replace(running, life=MachineLife())
    (event,) = events_between(by_others, msgspec.structs.replace(by_others, meter=gone), 5.0)
    assert (event.text, event.level) == ("provider says gone: storage still bills", "warn")


@pytest.mark.parametrize("severity", list(Severity))
def test_a_diagnosis_is_no_worse_an_event_than_its_alert(severity: Severity) -> None:
    finding = msgspec.structs.replace(FINDING, severity=severity)
    box = msgspec.structs.replace(BASE, findings=(finding,))
    (event,) = events_between(BASE, box, 5.0)
    (alert,) = (one for one in assess_box(box, 5.0).alerts if one.id.startswith("finding:"))
    assert (
        event.level == alert.level == ("error" if severity in ("fatal", "silent-wrong") else "warn")
    )


@pytest.mark.parametrize(
    ("by", "level"), [("rgt stop", "info"), ("SIGTERM", "warn")], ids=["a-person", "the-machine"]
)
def test_a_cell_that_a_person_stopped_is_no_warning(by: str, level: str) -> None:
    reason = f"the queue was stopped by {by}; the cell ended: exit 75"
    before = msgspec.structs.replace(BASE, queues=queue("running"))
    after = msgspec.structs.replace(BASE, queues=queue("interrupted", exit_code=75, reason=reason))
    (event,) = events_between(before, after, 7.0)
    assert (event.text, event.level) == (f"c interrupted: {reason}", level)


@pytest.mark.parametrize("what", ["failed", "failed:c", "interrupted", "finding", "host-key"])
def test_what_is_muted_is_for_the_journal_alone(what: str) -> None:
    """The words that the fleet's own events have for an alert; all that is not muted is said."""
    running = msgspec.structs.replace(BASE, queues=queue("running"))
    cases: dict[str, tuple[BoxState, dict[str, object], str, str]] = {
        "failed": (running, {"queues": queue("failed")}, "failed:c", "c failed"),
        "interrupted": (
            running,
            {"queues": queue("interrupted")},
            "interrupted:c",
            "c interrupted",
        ),
        "finding": (
            BASE,
            {"findings": (FINDING,)},
            "finding:U7:inodes of /w:",
            "U7 No space: inodes of /w",
        ),
        "host-key": (
            BASE,
            {"link": LinkState.REFUSED_KEY, "reason": "another key"},
            "host-key",
            "another key",
        ),
    }
    for kind, (old, change, id_, words) in cases.items():
        muted = Alert(id_, "error", "t", muted=what in (kind, id_))
        (event,) = events_between(old, msgspec.structs.replace(old, **change, alerts=(muted,)), 7.0)
        assert (event.text, event.muted) == (
            f"{words} (muted)" if muted.muted else words,
            muted.muted,
        )


def test_a_finding_that_was_muted_is_over_in_silence() -> None:
    muted = Alert("finding:U7:inodes of /w:", "error", "t", muted=True)
    old = msgspec.structs.replace(BASE, findings=(FINDING,), alerts=(muted,))
    (event,) = events_between(old, msgspec.structs.replace(old, findings=(), alerts=()), 7.0)
    assert (event.text, event.muted) == (
        "inodes of /w: no longer a problem: No space (U7) (muted)",
        True,
    )


def test_the_same_cause_in_another_run_is_told_of_each() -> None:
    one, other = (msgspec.structs.replace(FINDING, run=name) for name in ("r1", "r2"))
    old = msgspec.structs.replace(BASE, findings=(one,))
    assert texts(old, findings=(one, other)) == ["U7 No space: inodes of /w (r2)"]
    assert texts(msgspec.structs.replace(old, findings=(one, other)), findings=(other,)) == [
        "r1: no longer a problem: No space (U7)"
    ]


def test_names_and_reasons_of_a_box_are_plain_text() -> None:
    waiting = msgspec.structs.replace(BASE, queues=queue("waiting"))
    assert texts(waiting, queues=queue("failed", reason="\x1b[31mexit\u202e 1")) == [
        "c failed: exit 1"
    ]
    run = RunState(name="r\x07", resumes=(RunResume(step=320, reason="killed", index=3),))
    assert texts(BASE, runs=(run,)) == ["r resumed from step 320 (killed)"]


def test_nothing_changed_is_no_event() -> None:
    assert events_between(BASE, BASE, 1.0) == []


def test_a_box_without_a_profile_that_says_what_it_is_is_told_once_and_not_changed() -> None:
    hello = Hello(
        proto=1,
        agent="a",
        boot="b",
        host="h",
        python="3",
        pid=1,
        at=1.0,
        identity={"RUNPOD_POD_ID": "x1"},
    )
    first = Sample(boot="b", seq=1, at=1.0)
    known = msgspec.structs.replace(BASE, hello=hello)
    (said,) = texts(known, sample=first)
    assert "it seems to be a box of RunPod (RUNPOD_POD_ID)" in said and "x1" not in said
    seen = msgspec.structs.replace(known, sample=first)
    assert texts(seen, sample=Sample(boot="b", seq=2, at=2.0)) == []
    for spec in (
        BoxSpec(name="a", host="h", profile="vastai"),
        BoxSpec(name="a", host="h", untrusted=True),
    ):
        assert texts(msgspec.structs.replace(known, spec=spec), sample=first) == []
    assert texts(BASE, sample=first) == []
    autodl = msgspec.structs.replace(first, disks=(DiskReading(mount="/root/autodl-tmp"),))
    assert "AutoDL (/root/autodl-tmp)" in texts(BASE, sample=autodl)[0]
