"""The audit log as a screen: newest first, checked, read aside; a log that cannot be read is not an empty one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.demo import DemoFleet
from rgt_tui.gate import AuditEntry, AuditEvent, AuditLog
from rgt_tui.model import BillingVerb
from rgt_tui.ui.screens import AuditScreen
from rgt_tui.ui.widgets import SelectableList
from tests.ui.fakes import NOW, FakeFleet
from tests.ui.snap import running, screen_text, settle


@pytest.fixture
def log(state_home: Path) -> AuditLog:
    return AuditLog(state_home / "audit.jsonl")


def entry(n: int, event: AuditEvent, text: str) -> AuditEntry:
    return AuditEntry(
        at=NOW + n, event=event, box="vast-demo" if n % 2 else "lab\x1b[31m", verb=BillingVerb.DESTROY, instance="99",
        text=text, typed="vast-demo", evidence="c" * 64,
    )  # fmt: skip


async def test_newest_first_with_details_and_its_check(log: AuditLog, state_home: Path) -> None:
    for n, event in enumerate((AuditEvent.REFUSED, AuditEvent.REQUESTED, AuditEvent.ANSWER)):
        log.record_entry(entry(n, event, f"text {n}"))
    async with running(size=(140, 30), keys=("u",)) as (app, pilot, _):
        assert isinstance(app.screen, AuditScreen)
        text = screen_text(app)
        assert "✔ complete, 3 lines" in text.splitlines()[0]
        assert text.index("text 2") < text.index("text 1") < text.index("text 0")
        assert "\x1b" not in text and "typed   vast-demo" in text
        await pilot.press("j")
        await settle(pilot)
        assert "typed   vast-demo" in screen_text(app) and "text 1" in screen_text(app)
        await pilot.press("y")
        await settle(pilot)
        copied = (state_home / "copied.txt").read_text()
        assert (
            "vast-demo  destroy  99  requested  text 1  typed vast-demo  proof " + "c" * 64
            in copied
        )
        await pilot.press("enter")
        await settle(pilot)
        assert "typed" not in screen_text(
            app
        ) and "enter: the full text of this line" in screen_text(app)
        await pilot.press("q")
        app.open_screen("audit", "vast-demo")
        await settle(pilot)
        assert app.screen.query_one(SelectableList)._rows[0].key == "2", "of this box alone"
        assert len(app.screen.query_one(SelectableList)._rows) == 1


async def test_a_fleet_that_writes_its_own_log_shows_that_one(
    log: AuditLog, tmp_path: Path
) -> None:
    """As the demo does: it would say that nothing was tried, right behind a stop."""

    class OwnLog(FakeFleet):
        audit_file = tmp_path / "demo" / "audit.jsonl"

    log.record_entry(entry(1, AuditEvent.REQUESTED, "of the person"))
    AuditLog(OwnLog.audit_file).record_entry(entry(3, AuditEvent.REQUESTED, "of the demo"))
    async with running(OwnLog(), keys=("u",)) as (app, _, __):
        assert "of the demo" in screen_text(app) and "of the person" not in screen_text(app)


def test_the_demo_is_a_fleet_with_a_log_of_its_own() -> None:
    demo = DemoFleet()
    assert demo.audit_file is None, "nothing is written before its boxes stand"


async def test_in_a_narrow_terminal_what_happened_is_not_cut(log: AuditLog) -> None:
    for n, event in enumerate(AuditEvent):
        log.record_entry(
            msgspec.structs.replace(entry(n, event, f"text {n}"), box="train-a-100-of-the-lab")
        )
    async with running(size=(60, 20), keys=("u",)) as (app, _, __):
        text = screen_text(app)
        for event in AuditEvent:
            assert f"{event.value:<10}text" in text, text


async def test_a_log_that_was_changed_is_called_broken(log: AuditLog) -> None:
    for n in range(3):
        log.record_entry(entry(n, AuditEvent.REFUSED, f"text {n}"))
    log.path.write_bytes(log.path.read_bytes().replace(b"text 1", b"text 9"))
    async with running(size=(140, 30), keys=("u",)) as (app, _, __):
        assert (
            "✖ BROKEN at line 3: it does not follow the line before it"
            in screen_text(app).splitlines()[0]
        )


async def test_no_log_is_told_from_one_that_cannot_be_read(state_home: Path) -> None:
    async with running(size=(120, 30), keys=("u",)) as (app, pilot, fleet):
        assert "no billing action has been tried yet" in screen_text(app)
        assert "details" not in screen_text(app), "there is nothing to show more of"
        (state_home / "audit.jsonl").mkdir(parents=True)
        fleet.advance(10)
        app.tick(force=True)
        await settle(pilot)
        assert "cannot be read" in " ".join(screen_text(app).split()), (
            "wherever the line was broken"
        )
        assert "no billing action" not in screen_text(app)
