"""Text that a terminal obeys, in every field that a box fills: cleaned where it is decoded, or before it is shown."""

from __future__ import annotations

import json
import re
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from rgt_tui.cli import metrics, status_line
from rgt_tui.cli.printing import format_row, print_error, print_json, print_lines
from rgt_tui.fleet import FleetAlerting
from rgt_tui.fleet.changes import events_between
from rgt_tui.health import assess_box, diagnose_box, evaluate_checks
from rgt_tui.health.alert_sinks import notification_sequence
from rgt_tui.model import INVISIBLE, AlertEvent, BoxState, CheckResult, FleetState, clean_text
from rgt_tui.profiles import load_profile
from rgt_tui.providers import answers
from rgt_tui.providers.control_plane import make_printable
from rgt_tui.ssh import read_frame
from tests.security.odd_frames import KINDS, NOW, SPEC, Odd, taken
from tests.ui.conftest import _faults_end_the_app, _same_everywhere  # noqa: F401
from tests.ui.fakes import FakeFleet
from tests.ui.snap import running, screen_text, settle

HOSTILE = "\x1b[31mx\x1b]52;c;aGk=\x07\x1b]8;;http://x\x1b\\\x9b2J\u202e\u200b\n\t\0\x7fy"
"""Colour, clipboard, link, a C1 sequence, a change of direction, a blank of no width, line feed, tab, NUL and DEL."""
LEFT = re.compile(r"(?<!·)(?:\[31m|\]52;c|\]8;;|2J)")
"""What is left of it where control characters alone are taken away. Evidence shows each of them as a dot."""


class Hostile(Odd):
    """Makes frames with every field filled, and every text hostile."""

    def __init__(self) -> None:
        super().__init__(0)
        self._plain[str] = lambda: HOSTILE
        self._plain[Any] = lambda: {HOSTILE: [HOSTILE]}
        self._plain[int] = lambda: 1
        self._plain[float] = lambda: NOW

    def _chance(self, probability: float) -> bool:
        return probability > 0.5

    def _size(self) -> int:
        return 1


def lines() -> dict[type[msgspec.Struct], bytes]:
    return {kind: json.dumps(Hostile().struct(kind)).encode() for kind in KINDS}


def texts(value: Any, where: str = "", hint: Any = str) -> Iterator[tuple[str, str, Any]]:
    """Yield every text in a value: the field that holds it, the text, the declared type of the field."""
    if isinstance(value, msgspec.Struct):
        hints = typing.get_type_hints(type(value), include_extras=True)
        for name in value.__struct_fields__:
            yield from texts(getattr(value, name), f"{type(value).__name__}.{name}", hints[name])
    elif isinstance(value, dict):
        yield from (
            found for pair in value.items() for one in pair for found in texts(one, where, hint)
        )
    elif isinstance(value, tuple | list):
        yield from (found for one in value for found in texts(one, where, hint))
    elif isinstance(value, str):
        yield where, value, hint


def is_harmless(text: str) -> bool:
    return not INVISIBLE.search(text) and "\t" not in text and not LEFT.search(text)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_text_with_a_bound_is_exact(kind: type[msgspec.Struct]) -> None:
    """Cleaning makes a tab longer, and a snapshot with a text beyond its bound could not be read again."""
    for where, _, hint in texts(read_frame(lines()[kind]), kind.__name__):
        assert "max_length" not in str(hint) or "exact" in str(hint), where


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_text_of_a_frame_is_clean_except_those_declared_exact(
    kind: type[msgspec.Struct],
) -> None:
    found = list(texts(read_frame(lines()[kind])))
    odd = {where for where, text, hint in found if clean_text(text) != text}
    assert odd == {where for where, _, hint in found if "exact" in str(hint)}


def test_the_frames_hold_a_hostile_text_in_every_field() -> None:
    held = {where for line in lines().values() for where, _, _ in texts(read_frame(line))}
    declared: set[str] = set()

    def walk(kind: type[msgspec.Struct]) -> None:
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            parts = [hint]
            for part in parts:
                parts += typing.get_args(part)
                if isinstance(part, type) and issubclass(part, msgspec.Struct):
                    walk(part)
            if str in parts:
                declared.add(f"{kind.__name__}.{name}")

    for kind in KINDS:
        walk(kind)
    assert declared and declared <= held


def hostile_state() -> BoxState:
    """Return the state of a box of which every text is hostile, as the fleet judges it."""
    state, refused = taken(lines().values())
    assert not refused
    state = msgspec.structs.replace(state, findings=diagnose_box(state, NOW, ()))
    return FleetAlerting(clock=lambda: NOW).judge_box(state, NOW)[0]


def test_nothing_hostile_is_printed_journaled_or_sent() -> None:
    state = hostile_state()
    line = status_line.status_line(state, assess_box(state, NOW), NOW)
    told = [
        status_line.text_line(line),
        *(event.text for event in events_between(BoxState(spec=SPEC), state, NOW)),
        *(alert.text for alert in state.alerts),
        *status_line.encode_line(line).decode().splitlines(),
        *metrics.format_exposition(FleetState(boxes=(state,), at=NOW), NOW).decode().splitlines(),
    ]
    assert state.alerts
    assert [text for text in told if not is_harmless(text)] == []


def test_a_desktop_note_holds_one_sequence_of_our_own() -> None:
    event = AlertEvent(what="raised", at=NOW, level="warn", title=HOSTILE, text=HOSTILE)
    note = notification_sequence(event, {}).decode()
    assert note.startswith("\x1b]9;") and note.endswith("\x07")
    assert is_harmless(note[4:-1])


def test_what_a_command_prints_is_cleaned_whatever_it_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_lines(HOSTILE, HOSTILE)
    sys.stdout.write(format_row([(HOSTILE, 8, "dim")], HOSTILE))
    print_error(HOSTILE)
    print_json({HOSTILE: HOSTILE})
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 4, "a line feed of somebody else begins no line"
    told = [*printed.out.splitlines()[:3], *printed.err.splitlines()]
    assert [row for row in told if not is_harmless(row)] == []
    assert not INVISIBLE.search(printed.out.splitlines()[3])


@pytest.mark.parametrize("read", [answers.parse_text, make_printable])
def test_what_a_provider_says_is_printable(read: Callable[[object], str | None]) -> None:
    assert (read(HOSTILE) or "").isprintable()


SCREENS: dict[str, tuple[str, ...]] = {"": (), "box": ("f",), "log": ("e",), "curves": ("m", "v"), "phases": ("enter",),
           "alerts": ("enter",), "journal": (), "teardown": ("tab",)}  # fmt: skip


class JudgedFleet(FakeFleet):
    """Evaluates the checks of its one box, as a real fleet does."""

    def evaluate_checks(self, box: str) -> tuple[CheckResult, ...]:
        found = self.state.find_box(box)
        return () if found is None else evaluate_checks(found, load_profile(SPEC.profile), NOW)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_nothing_hostile_is_on_a_screen(size: tuple[int, int]) -> None:
    fleet = JudgedFleet(FleetState((hostile_state(),), (), NOW))
    async with running(fleet, size=size) as (app, pilot, _):
        for place, keys in SCREENS.items():
            if place:
                app.open_screen(place, SPEC.name)
            await settle(pilot)
            for key in ("", *keys):
                if key:
                    await pilot.press(key)
                    await settle(pilot)
                shown = screen_text(app)
                assert "�" not in shown, place
                assert [row for row in shown.splitlines() if not is_harmless(row)] == [], place
            while len(app.screen_stack) > 1:
                app.pop_screen()
            await settle(pilot)
