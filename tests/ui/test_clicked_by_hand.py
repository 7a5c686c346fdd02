"""A box of a platform without an API, from the key to the alert: what to click, the gate, what is seen, what is open.

The screen, the gate, the journal and the control plane are the real ones; the box is set by hand.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Unpack

import msgspec
import pytest

from rgt_tui.fleet import Alerting, billing_actions
from rgt_tui.fleet.billing_actions import Teardown
from rgt_tui.fleet.box_evidence import Asking
from rgt_tui.fleet.box_questions import Wanted
from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.fleet.connector import ConnectLimit
from rgt_tui.fleet.fleet_source import Given
from rgt_tui.fleet.meters import Meters
from rgt_tui.fleet.open_actions import OpenActions
from rgt_tui.gate import JOURNAL, ActionState, AuditLog, Journal
from rgt_tui.model.box import BoxSpec, Link, ProviderRef
from rgt_tui.model.evidence import Review, StopPhase, StopProgress, Verb, steady
from rgt_tui.model.fleet import FleetState
from rgt_tui.model.profile import Profile
from rgt_tui.model.results import Results, Seal
from rgt_tui.profiles import load_profile
from rgt_tui.providers import carry_out
from rgt_tui.ssh import AgentBundle
from rgt_tui.ui.screens.teardown import TeardownScreen
from rgt_tui.ui.widgets.confirm import DialogButton
from rgt_tui.ui.widgets.confirm_choice import NOTHING
from rgt_tui.ui.widgets.confirm_state import Stage
from rgt_tui.ui.widgets.evidence_list import EvidenceList
from tests.contract.fleet.test_teardown import quiet_state
from tests.ui.fakes import FakeFleet
from tests.ui.snap import running, screen_text
from tests.ui.test_teardown import said, type_name, until

replace = msgspec.structs.replace
BOX = "lab"


class ClickedFleet(FakeFleet):
    """One box that is stopped on a console: its billing actions are the real ones."""

    def __init__(self, folder: Path, *, clicks: bool) -> None:
        self.clicks, self.ahead = clicks, 0.0
        self.profile_ = load_profile("gpushare")
        spec = BoxSpec(
            name=BOX,
            host="127.0.0.1",
            profile="gpushare",
            tiers={"/net": "netdisk"},
            provider=ProviderRef("gpushare", "instance-7"),
            per_hour=1.98,
            currency="CNY",
        )
        bundle = AgentBundle(data=b"", digest="", filename="")
        self.session = BoxSession(spec, self.profile_, bundle, ConnectLimit(), time.time, lambda _: None)
        self.session.state = quiet_state(spec)
        sessions = {BOX: self.session}
        self.meters = Meters(sessions, seconds=60, clock=time.time, say=print, env={})
        asking = Asking(
            look=self._look,
            results=self._results,
            seal=self._seal,
            unseal=self._unseal,
            unsealed=lambda _: None,
        )
        audit = folder / "audit.jsonl"
        self.teardown = Teardown(sessions, {BOX: self.profile_}, self.meters, audit, time.time, asking=asking)
        self.journal = Journal(folder / JOURNAL)
        self.open = OpenActions(
            self.journal,
            AuditLog(audit),
            sessions,
            self.meters,
            clock=time.time,
            say=lambda text, level: None,
        )
        super().__init__(FleetState(boxes=(self.session.state,), at=time.time()), at=time.time())

    def now(self) -> float:
        return time.time() + self.ahead

    def advance(self, seconds: float) -> None:
        """Let the screen think that time has passed since a key."""
        self.ahead += seconds

    def profile(self, box: str) -> Profile:
        return self.profile_

    async def _look(self, box: BoxSession) -> float:
        begun = steady()
        box.state = replace(box.state, sample_at=time.time(), seen=replace(box.state.seen, sample=steady()))
        return begun

    async def _results(self, box: BoxSession, wanted: Wanted) -> Results:
        return Results(at=time.time(), generation="g", groups=())

    async def _seal(self, box: BoxSession, wanted: Wanted) -> Seal:
        return Seal(nonce="s" * 32, generation="g", at=time.time(), seconds=120.0)

    async def _unseal(self, box: BoxSession, nonce: str) -> None:
        pass

    async def review(self, box: str, verb: Verb, **given: Unpack[Given]) -> Review:
        return await self.teardown.review(box, verb, **given)

    async def execute(
        self, box: str, verb: Verb, typed: str, *, evidence_digest: str | None = None, **given: Unpack[Given]
    ) -> AsyncIterator[StopProgress]:
        async for step in self.teardown.execute(box, verb, typed, evidence_digest=evidence_digest, **given):
            if step.phase is StopPhase.REQUESTED and self.clicks:
                self.goes_silent()
            yield step

    def goes_silent(self) -> None:
        """The person has clicked."""
        self.session.state = replace(
            self.session.state, link=Link.UNREACHABLE, sample_at=time.time() - 600, reason="no answer"
        )


@pytest.mark.parametrize("clicked", [True, False])
async def test_from_the_key_to_what_stays_open(
    clicked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = functools.partial(carry_out, timeout_s=0.0)
    monkeypatch.setattr(billing_actions, "carry_out", quick)
    fleet = ClickedFleet(tmp_path, clicks=clicked)
    async with running(lambda: fleet, size=(120, 50)) as (app, pilot, _):
        await until(pilot, lambda: app.fleet is not None)
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, TeardownScreen) and app.screen.is_mounted)
        screen = app.screen
        assert isinstance(screen, TeardownScreen)
        await until(pilot, lambda: screen.state.review is not None)
        call = "nothing; you do it: console: 关机 · on the box: shutdown (instance-7, https://gpushare.com)"
        assert call in said(screen)
        assert "nothing proves that this machine is instance-7" in screen_text(app)
        fleet.advance(1.0)
        screen.query_one(EvidenceList).focus()
        await pilot.press("f")
        await until(pilot, lambda: screen.state.reviewed_for == screen.state.choice != NOTHING)
        review = screen.state.review
        assert review is not None and review.phrase == f"forfeit 1 of {BOX} instance-7"
        fleet.advance(1.0)
        await type_name(pilot, screen, review.phrase)
        await pilot.press("tab", "tab")
        assert screen.focused is screen.query_one("#ok", DialogButton)
        fleet.advance(1.0)
        await pilot.press("enter")
        await until(pilot, lambda: screen.state.stage is Stage.UNKNOWN)
        assert call in said(screen), "what to click stays on the screen"
        assert "state unknown, check the console at https://gpushare.com" in screen_text(app)
        first, last = (screen.state.progress[at] for at in (0, -1))
        assert first.text.startswith("rgt sends nothing; yours to do now: console: 关机")
        seen = "probably stopped, not confirmed" if clicked else "last shown: answers over SSH"
        assert (last.phase, seen in last.text) == (StopPhase.UNCONFIRMED, True), last.text
    # Nothing ever says that it is off: it stays open, and is an alert.
    (still,) = await fleet.open.look()
    assert (still.first.box, still.last.state) == (BOX, ActionState.UNKNOWN)
    state, _events = Alerting().judged(fleet.session.state, time.time())
    assert "unconfirmed" in {alert.kind for alert in state.alerts}, state.alerts
    assert "park of lab" in state.open_action
    await fleet.meters.close()
