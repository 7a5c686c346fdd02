"""A person's own keys are the keys that every screen names: in its key line, its panes, its hints and its help."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from rgt_tui.ui import (
    Preferences,
    RgtApp,
    choose_keys,
    commands_by_screen,
    key_for,
    parse_preferences,
)
from rgt_tui.ui.screens import FleetAwareScreen
from tests.ui.fakes import FakeFleet
from tests.ui.snap import screen_text, settle

CHOSEN = """
[keys]
"screen.copy" = "ctrl+y"
"screen.back" = "Q"
"past.journal" = "ctrl+o"
"past.machine" = "ctrl+e"
"box.curves" = "Z"
"box.log" = "W"
"box.phases" = "ctrl+f"
"box.alerts" = "K"
"box.history" = "ctrl+r"
"box.teardown" = "ctrl+x"
"fleet.open" = "ctrl+n"
"fleet.transfers" = "C"
"alerts.ended" = "ctrl+w"
"phases.run" = "ctrl+k"
"phases.tick" = "9"
"log.follow" = "8"
"app.help" = "f3"
"""
OLD = re.compile(
    r"(?<![\w+./$~-])(?:"
    r"y (?:copy|copies)|q (?:back|goes)|J (?:journal|tells|─)|T (?:time machine|shows)|c (?:curves|─)|"
    r"l (?:log|shows)|p (?:phases|the phases)|a alerts|h (?:past|goes on|shows|─)|D (?:tear|asks)|"
    r"enter opens|x transfers|enter runs?|space (?:tick|takes)|F follow|\? help)"
)
"""The keys as they were, each beside the words that tell what it does."""


@pytest.fixture
def preferences() -> Iterator[Preferences]:
    yield parse_preferences(CHOSEN, "ui.toml")
    choose_keys({})


async def test_every_main_screen_names_the_keys_that_a_person_has_chosen(
    preferences: Preferences,
) -> None:
    fleet = FakeFleet()
    app = RgtApp(lambda: fleet, preferences=preferences)
    seen: dict[str, str] = {}
    async with app.run_test(size=(160, 45)) as pilot:
        await settle(pilot)
        for keys in (
            (), ("ctrl+n",), ("ctrl+n", "ctrl+r"), ("W",), ("W", "home"), ("Z",), ("ctrl+f",),
            ("ctrl+f", "down", "down"), ("K",), ("C",), ("ctrl+o",), ("i",), ("H",), ("u",), ("f3",),
        ):  # fmt: skip
            for key in keys:
                await pilot.press(key)
                await settle(pilot)
            place = getattr(app.screen, "PLACE", "help")
            text = screen_text(app)
            seen[f"{place} {' '.join(keys)}"] = text
            found = OLD.search(text)
            assert found is None, f"{place}: {found[0]!r} is a key that was given away:\n{text}"
            if isinstance(app.screen, FleetAwareScreen):
                assert "f3 help" in text, text
            while len(app.screen_stack) > 2 or not isinstance(app.screen, FleetAwareScreen):
                await pilot.press("escape")
                await pilot.pause()
            if getattr(app.screen, "PLACE", "") != "fleet":
                await pilot.press("Q")
                await settle(pilot)
    places = {name.split(" ")[0] for name in seen}
    assert {
        "fleet",
        "box",
        "log",
        "curves",
        "phases",
        "alerts",
        "transfers",
        "journal",
        "platform",
    } <= places
    assert "ctrl+y copies" in seen["fleet "] and "Z ─" in seen["fleet "]


def test_a_text_names_the_key_of_a_command_that_there_is(preferences: Preferences) -> None:
    known = {command.id for _, commands in commands_by_screen() for command in commands}
    assert key_for("screen.copy") == "y"
    choose_keys(preferences.keys)
    assert (key_for("screen.copy"), key_for("app.help"), key_for("fleet.filter")) == (
        "ctrl+y",
        "f3",
        "/",
    )
    assert set(preferences.keys) <= known
    with pytest.raises(KeyError):
        key_for("screen.nonesuch")
