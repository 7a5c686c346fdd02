"""A record is read in the reader's language, whatever the language of the rgt that wrote it."""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Callable

import msgspec
import pytest

from rgt_tui import language
from rgt_tui.fleet import events_between
from rgt_tui.health import AlertState, alert_ended, step_alerts
from rgt_tui.model import (
    Alert,
    BoxSpec,
    BoxState,
    DiskReading,
    EventFilter,
    Finding,
    FleetEvent,
    LinkState,
    QueueCell,
    QueueState,
    Sample,
    Severity,
    how_many,
)
from rgt_tui.store import happenings

LANGUAGES = ("en", "zh_CN")
BASE = BoxState(spec=BoxSpec(name="a", host="h"), since=100.0, link=LinkState.LIVE)
FULL = DiskReading(
    mount="/workspace", bytes_total=100, bytes_used=40, bytes_free=60,
    inodes_total=1000, inodes_used=1000,
)  # fmt: skip


@pytest.fixture
def speak(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that changes the language, as another process would have it."""
    # No text that another test made is known.
    monkeypatch.setattr(language, "_recent", language._RecentTexts())

    def change_language(name: str) -> None:
        monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue(name))

    return change_language


def event_of(**changes: object) -> str:
    (event,) = events_between(BASE, msgspec.structs.replace(BASE, **changes), 200.0)
    return event.text


def queue_event() -> str:
    before = QueueCell(name="test", cfg="c", task="t", state="running")
    after = msgspec.structs.replace(before, state="failed", reason="exit 1")
    old = msgspec.structs.replace(BASE, queues=(QueueState(path="/q", at=1.0, cells=(before,)),))
    new = msgspec.structs.replace(BASE, queues=(QueueState(path="/q", at=2.0, cells=(after,)),))
    (event,) = events_between(old, new, 200.0)
    return event.text


def finding_event() -> str:
    title = "Quota reached although the disk has room"
    finding = Finding("U6", title, Severity.FATAL, "inodes of /data", "line", "log", run="lstm-a")
    return event_of(findings=(finding,))


def inode_alert() -> str:
    box = msgspec.structs.replace(BASE, sample=Sample(boot="b", seq=1, at=1.0, disks=(FULL,)))
    state = AlertState()
    for now in (1.0, 61.0, 121.0, 181.0):
        box = msgspec.structs.replace(box, sample_at=now)
        state = step_alerts(state, box, now).book
    return next(
        machine.alert.text
        for machines in state.machines.values()
        for machine in machines.values()
        if machine.alert is not None and machine.alert.kind == "inodes"
    )


def ended_event() -> str:
    event = alert_ended("a", Alert("stalled:lstm-b", "error", "text", since=1000.0), 1204.0)
    assert event is not None
    return event.text


MADE: dict[str, Callable[[], str]] = {
    "a text": lambda: language.translate("connected"),
    "a reason": lambda: event_of(link=LinkState.UNREACHABLE, reason=language.translate("it does not answer")),
    "a noun": lambda: language.translate(
        "rgt began to watch {boxes}, process {pid}", boxes=how_many(1200, "box", "boxes"), pid=7
    ),
    "a number with a format": lambda: language.translate(
        "{name} resumed from step {step:,} ({reason})", name="a", step=12000, reason="exit 1"
    ),
    "parts put together": lambda: f"lab: {language.translate('it does not answer')}" + language.translate(
        "; its log is {log}", log="/out.log"
    ),
    "a list": lambda: language.join_texts("; ", [how_many(2, "run"), how_many(1, "queue")]),
    "a queue": queue_event,
    "a finding": finding_event,
    "an alert": inode_alert,
    "the end of an alert": ended_event,
}  # fmt: skip


@pytest.mark.parametrize(("writer", "reader"), [LANGUAGES, LANGUAGES[::-1]])
@pytest.mark.parametrize("name", [*MADE])
def test_a_recorded_text_reads_as_if_made_in_the_readers_language(
    name: str,
    writer: str,
    reader: str,
    speak: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speak(reader)
    expected = MADE[name]()
    speak(writer)
    made = MADE[name]()
    stored = language.store_text(made)
    assert made != expected
    assert language.load_text(stored) == made
    # The reader is another process, which has made none of these texts.
    monkeypatch.setattr(language, "_recent", language._RecentTexts())
    speak(reader)
    assert language.load_text(stored) == expected


@pytest.mark.parametrize("name", [*MADE])
def test_a_chinese_record_for_programs_is_the_english_text(
    name: str, speak: Callable[[str], None]
) -> None:
    speak("en")
    expected = MADE[name]()
    speak("zh_CN")
    assert language.record_text(MADE[name]()) == expected


def stopped_event() -> str:
    before = QueueCell(name="c", cfg="c", task="t", state="running")
    # As `rgt_box.queue` writes it.
    reason = "the queue was stopped by rgt stop; the cell ended: exit 75"
    after = msgspec.structs.replace(before, state="interrupted", reason=reason)
    old = msgspec.structs.replace(BASE, queues=(QueueState(path="/q", at=1.0, cells=(before,)),))
    new = msgspec.structs.replace(BASE, queues=(QueueState(path="/q", at=2.0, cells=(after,)),))
    (event,) = events_between(old, new, 200.0)
    return event.text


@pytest.mark.parametrize(("writer", "reader"), [LANGUAGES, LANGUAGES[::-1]])
def test_a_message_of_the_agent_is_shown_in_the_readers_language(
    writer: str,
    reader: str,
    speak: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speak(writer)
    stored = language.store_text(stopped_event())
    expected = {
        "en": "c interrupted: the queue was stopped by rgt stop; the cell ended: exit 75",
        "zh_CN": "c 中断：队列被 rgt stop 停止；任务已结束：exit 75",
    }
    assert language.load_text(stored) == expected[writer]
    monkeypatch.setattr(language, "_recent", language._RecentTexts())
    speak(reader)
    assert language.load_text(stored) == expected[reader]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("out of memory in the container (24 GiB)", "容器内存不足（24 GiB）"),
        ("killed by the kernel: 4711", "被内核杀死：4711"),
        ("the GPU has fallen off the bus: lost until the machine restarts", "GPU 掉卡：机器重启之前都不能用"),
        ("Segmentation fault (core dumped)", "Segmentation fault (core dumped)"),
    ],
)  # fmt: skip
def test_only_the_agents_own_words_are_translated(
    message: str, shown: str, speak: Callable[[str], None]
) -> None:
    speak("zh_CN")
    assert language.show_recorded(message) == shown


def test_a_name_that_is_also_a_text_stays_a_name(speak: Callable[[str], None]) -> None:
    speak("en")
    language.translate("failed")
    stored = language.store_text(language.translate("{name} started", name="".join(["fai", "led"])))
    speak("zh_CN")
    assert language.load_text(stored) == "failed 已启动"


@pytest.mark.parametrize("name", ["数据", "结果", "训练", "完成"])
@pytest.mark.parametrize("is_shown", [False, True])
def test_a_chinese_name_that_is_also_a_translation_stays_a_name(
    name: str, is_shown: bool, speak: Callable[[str], None]
) -> None:
    speak("zh_CN")
    known = language._english_of(language.load_catalogue("zh_CN"))
    if is_shown:
        language.translate(known[name])
    made = language.translate("{name} started", name="".join([*name]))
    assert language.record_text(made) == f"{name} started"
    stored = language.store_text(made)
    speak("en")
    assert language.load_text(stored) == f"{name} started"


@pytest.mark.parametrize(
    "text",
    ["over: inodes of /workspace", "", "\x1e", "\x1e[", "\x1e[1]",
     '\x1e["{a:c}", {"a": 100000000000000000000}]', '\x1e["{a:>20000}", {"a": 1}]',
     '\x1e["{a:>{b}}", {"a": 1, "b": 20000}]', '\x1e["{a:.20000f}", {"a": 1}]',
     '\x1e["{a.b}", {"a": 1}]', '\x1e[["x"], 3]', "\x1e" + "[" * 5000],
)  # fmt: skip
def test_an_old_row_and_a_damaged_one_are_shown_as_they_are(text: str) -> None:
    assert language.load_text(text) == text.lstrip("\x1e")


def test_a_text_from_a_box_is_never_read_as_a_template(speak: Callable[[str], None]) -> None:
    speak("en")
    forged = "\x1e" + json.dumps(["{name} started", {"name": "a"}])
    assert not language.store_text(forged).startswith("\x1e")
    assert language.load_text(language.store_text("50% of {x} done")) == "50% of {x} done"


def test_a_text_without_known_parts_is_searched_once(
    speak: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A box's state is stored every few seconds with the same alerts and findings."""
    searched: list[str] = []

    def find_nothing(text: str) -> None:
        searched.append(text)

    speak("en")
    monkeypatch.setattr(language, "_find_known_parts", find_nothing)
    quoted = [f"line {number} of a program" for number in range(3000)]
    for text in quoted:
        assert [language.store_text(text) for _ in range(3)] == [text] * 3
    assert searched == quoted
    # They are not kept without a limit.
    language.store_text(quoted[0])
    assert searched[len(quoted) :] == quoted[:1]


def test_a_date_that_cannot_be_formatted_again_stays_a_text(speak: Callable[[str], None]) -> None:
    speak("zh_CN")
    made = language.translate("{name} started", name=datetime.date(2026, 11, 30))
    assert language.load_text(language.store_text(made)) == made


def test_the_journal_is_read_in_the_readers_language(speak: Callable[[str], None]) -> None:
    """Rows of an rgt that stored finished sentences are shown as they are."""
    con = sqlite3.connect(":memory:")
    con.execute(happenings.TABLE)
    con.execute("INSERT INTO happened VALUES (1, 5.0, 1, '已连接', 'info', 'link')")
    speak("zh_CN")
    happenings.write_event(
        con,
        1,
        FleetEvent(at=6.0, box="a", text=language.store_text(language.translate("connected"))),
    )
    speak("en")
    found = happenings.read_event_page(con, {1: "a"}, EventFilter(term="CONN"), None)
    assert [row.text for row in found.rows] == ["connected"]
    assert [
        row.text for row in happenings.read_event_page(con, {1: "a"}, EventFilter(), None).rows
    ] == [
        "已连接",
        "connected",
    ]
