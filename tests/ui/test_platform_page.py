"""The platform page: every field of a profile, what counts for this box, and its first form at the first contact."""

from __future__ import annotations

import msgspec
import pytest
from textual.pilot import Pilot

from rgt_tui.model import FleetState, Profile
from rgt_tui.profiles import FIRST_CONTACT, all_profiles, load_profile, platform_sections
from rgt_tui.ui import RgtApp
from rgt_tui.ui.screens import FirstContactScreen, FleetScreen, PlatformScreen, TeardownScreen
from rgt_tui.ui.widgets import Pane, text_of
from tests.ui.fakes import NOW, demo_state, lost_box, running_box
from tests.ui.snap import running, screen_text, settle

CALM = FleetState((running_box(),), (), NOW)


class Met:
    """Remembers in memory; `broken` = cannot."""

    def __init__(self, *known: str, broken: str | None = None) -> None:
        self.known = set(known)
        self.broken = broken

    async def has_seen(self, profile: Profile) -> bool:
        return profile.id in self.known

    async def record_seen(self, profile: Profile) -> str | None:
        if self.broken is None:
            self.known.add(profile.id)
        return self.broken


def words(profile: Profile) -> str:
    return " ".join(
        f"{row.label} {row.text}" for section in platform_sections(profile) for row in section.rows
    )


@pytest.mark.parametrize("name", sorted(all_profiles()))
def test_nothing_that_a_profile_says_is_left_out(name: str) -> None:
    profile = load_profile(name)
    shown = words(profile)
    texts = [profile.top_danger, *profile.conveniences]
    texts += [tier.note for tier in profile.tiers if tier.note]
    for action in profile.billing:
        texts += [
            action.native_label,
            *action.how,
            *filter(None, (action.note, action.first, action.confirm_with)),
        ]
    for clock in profile.clocks:
        texts += [
            clock.what,
            clock.consequence,
            clock.applies_when,
            *(c.url for c in clock.claims if c.url),
        ]
    for gotcha in profile.gotchas:
        texts += [gotcha.id, gotcha.symptom, gotcha.cause, gotcha.fix]
    for one in profile.contradictions:
        texts += [one.about, *one.sides, one.counts]
    texts += [source.fact for source in profile.sources]
    parts = (
        profile.launch,
        profile.network,
        profile.interruption,
        profile.daemon,
        profile.overrides,
        profile.storage,
    )
    for part in parts:
        for field in part.__struct_fields__:
            value = getattr(part, field)
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, tuple):
                texts += [item for item in value if isinstance(item, str) and field != "sources"]
    assert [text for text in texts if text not in shown] == []


def test_what_nobody_says_reads_unknown() -> None:
    profile = load_profile("generic-ssh")
    (tier, *_) = profile.tiers
    bare = msgspec.structs.replace(
        profile,
        tiers=(
            msgspec.structs.replace(
                tier, survives_stop=None, survives_destroy=None, bills_while_stopped=None
            ),
        ),
        network=msgspec.structs.replace(profile.network, traffic=None),
    )
    shown = words(bare)
    assert "stop: unknown, destroy: unknown" in shown
    assert "unknown whether it bills while stopped" in shown
    assert "no source says what it costs" in shown


async def test_i_opens_the_page_of_the_selected_box_and_counts_as_read() -> None:
    met = Met("autodl", "runpod", "vastai", "generic-ssh")
    async with running(CALM, size=(120, 24), met=met) as (app, pilot, _):
        met.known.clear()
        await pilot.press("i")
        await settle(pilot)
        assert type(app.screen) is PlatformScreen
        assert "autodl" in met.known
        lines = [text_of(line) for line in app.screen.query_one("#page", Pane).shown_lines]
        assert any("worst" in line for line in lines[:6]), "what it can still cost stands first"
        assert any("what survives" in line for line in lines)
        first = screen_text(app)
        await pilot.press("pagedown")
        await settle(pilot)
        assert screen_text(app) != first
        await pilot.press("q")
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 34), (200, 50)], ids=str)
async def test_the_page_at_each_size(size: tuple[int, int]) -> None:
    async with running(CALM, size=size, keys=("i",)) as (app, pilot, _):
        rows = screen_text(app).splitlines()
        assert len(rows) == size[1] and max(map(len, rows)) <= size[0]
        more = app.screen.query_one("#more", Pane)
        assert more.display is (size[0] >= 150)
        if more.display:
            page = app.screen.query_one("#page", Pane)
            assert (page.size.width, more.size.width) == (size[0] // 2, size[0] // 2), (
                "two columns of one width"
            )
            await pilot.press("tab")
            assert app.screen.focused is more


async def test_a_platform_is_introduced_once_when_its_box_has_answered() -> None:
    met = Met()
    lost = FleetState((lost_box(),), (), NOW)
    async with running(lost, size=(120, 34), met=met) as (app, pilot, fleet):
        assert isinstance(app.screen, FleetScreen), "nobody has answered yet"
        fleet.push(CALM)
        await shown(app, pilot)
        assert app.screen.PLACE == "first contact"
        text = screen_text(app)
        assert "what survives" in text and "danger" in text
        titles = {section.title for section in platform_sections(load_profile("autodl"))}
        assert set(FIRST_CONTACT) <= titles
        await pilot.press("escape")
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen) and not met.known, "closed, not read"
        for _ in range(3):
            app.tick(force=True)
            await settle(pilot)
        assert isinstance(app.screen, FleetScreen), "it does not come up again in this session"


async def test_enter_says_that_it_was_read() -> None:
    met = Met()
    async with running(CALM, size=(120, 34), met=met) as (app, pilot, _):
        await shown(app, pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert met.known == {"autodl"}
        assert isinstance(app.screen, FleetScreen)


async def test_one_page_for_each_platform_and_none_over_a_screen_where_something_is_done() -> None:
    met = Met()
    async with running(demo_state(), size=(120, 34), met=met) as (app, pilot, _):
        names = []
        for _ in range(3):
            await shown(app, pilot)
            assert isinstance(app.screen, FirstContactScreen)
            names.append(app.screen.fleet.profile_of(app.screen.box_name or "").id)
            await pilot.press("enter")
            await settle(pilot)
        assert len(set(names)) == 3 and met.known == set(names)
    # As long as no box has answered, nothing comes up.
    silent = msgspec.structs.replace(running_box(), hello=None, sample=None, sample_at=None)
    before = FleetState((silent,), (), NOW)
    async with running(before, size=(120, 34), keys=("D",), met=Met()) as (app, pilot, fleet):
        fleet.push(CALM)
        for _ in range(4):
            app.tick(force=True)
            await settle(pilot)
        assert isinstance(app.screen, TeardownScreen)


async def test_what_is_typed_when_the_page_comes_up_by_itself_does_nothing_that_it_does_not_offer() -> (
    None
):
    """`/Demo`, meant for the fleet's filter: the page has no entry, and `D` opened the review of tearing a box down."""
    async with running(CALM, size=(120, 34), met=Met()) as (app, pilot, _):
        await shown(app, pilot)
        for key in ("slash", "D", "e", "m", "o", "l", "c", "p"):
            await pilot.press(key)
            await settle(pilot)
            assert isinstance(app.screen, FirstContactScreen), key


async def test_what_cannot_be_remembered_is_said() -> None:
    async with running(CALM, size=(120, 34), met=Met(broken="the disk is full")) as (app, pilot, _):
        await shown(app, pilot)
        await pilot.press("enter")
        await settle(pilot)
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert "could not save that it was read: the disk is full" in screen_text(app)


async def shown(app: RgtApp, pilot: Pilot[None]) -> None:
    """Let the app ask whether the platform was met, and bring its page up."""
    for _ in range(20):
        app.tick(force=True)
        await settle(pilot)
        if isinstance(app.screen, FirstContactScreen):
            return
    raise AssertionError("no platform was introduced")
