from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import msgspec
import pytest

from rgt_tui.fleet import Chronicle
from rgt_tui.fleet.history.spoken_times import coming_time
from rgt_tui.health import assess_box
from rgt_tui.model import (
    Alert,
    BoxState,
    EventFilter,
    FleetEvent,
    FleetState,
    Happening,
    Happenings,
    LinkState,
    ScreenPosition,
)
from rgt_tui.ui import RgtApp, compact_time
from rgt_tui.ui.screens import (
    AlertRow,
    AlertsScreen,
    BoxScreen,
    detail_lines,
    ended_rows,
    finding_of,
    row_line,
)
from rgt_tui.ui.widgets import BoxContext, Tone, context_height, text_of
from tests.ui.fakes import NOW, FakeFleet, demo_state, running_box
from tests.ui.snap import resize, running, screen_text, settle


def alerts(app: RgtApp) -> AlertsScreen:
    assert isinstance(app.screen, AlertsScreen)
    return app.screen


async def test_the_alerts_of_all_boxes_worst_first() -> None:
    async with running(keys=("a",)) as (app, _, _):
        assert isinstance(app.screen, AlertsScreen)
        rows = list(alerts(app).shown.values())
        assert rows
        levels = [row.alert.level for row in rows]
        assert levels == sorted(levels, key=["error", "warn"].index)
        assert "vast-demo" in screen_text(app)


async def test_muting_says_for_how_long_and_asks_the_fleet() -> None:
    async with running(keys=("a",)) as (app, pilot, fleet):
        picked = alerts(app).picked_alert
        assert picked is not None
        await pilot.press("m")
        await pilot.press("M")
        await pilot.press("u")
        assert fleet.told == [
            ("mute", picked.box, picked.alert.id, 3600.0),
            ("mute", picked.box, picked.alert.id, None),
            ("mute", picked.box, picked.alert.id, 0.0),
        ]
        assert "unmuted" in screen_text(app)


async def test_enter_opens_the_box_of_the_alert() -> None:
    async with running(keys=("a", "enter")) as (app, _, _):
        assert isinstance(app.screen, BoxScreen)


async def test_a_box_shows_its_own_alerts_only() -> None:
    async with running(keys=("enter", "a")) as (app, _, _):
        assert isinstance(app.screen, AlertsScreen)
        assert {row.box for row in list(alerts(app).shown.values())} == {"vast-demo"}


def test_a_muted_alert_is_dim_and_says_so() -> None:
    row = AlertRow(
        "lab", Alert("memory", "error", "memory 98%", "memory", since=NOW - 90, muted=True)
    )
    made = row_line(row, 5, NOW)
    assert {span.tone for span in made} == {Tone.DIM}
    assert "muted" in text_of(made)
    assert "1m30" in text_of(made)


def test_the_details_name_what_to_do() -> None:
    row = AlertRow(
        "lab", Alert("memory", "error", "memory 98%", since=NOW - 90), "lower the workers"
    )
    text = "\n".join(text_of(made) for made in detail_lines(row, 60, NOW, said=True))
    assert "lower the workers" in text
    assert "1m30 ago" in text


def test_a_diagnosis_is_said_once_and_its_place_and_proof_are_there() -> None:
    state = demo_state()
    box = next(box for box in state.boxes if box.spec.name == "vast-demo")
    alert = next(one for one in assess_box(box, NOW).alerts if one.id.startswith("finding:"))
    row = AlertRow(box.spec.name, alert, finding=finding_of(box, alert))
    assert row.finding is not None and row.finding.reading is not None
    head = text_of(row_line(row, 9, NOW))
    assert compact_time(NOW - row.finding.since) in head, "since when it holds"
    below = [text_of(made) for made in detail_lines(row, 110, NOW, said=True)]
    text = "\n".join(below)
    assert row.finding.reading in head and row.finding.reading not in text
    assert row.finding.resource not in [part.strip() for part in below]
    for label, words in (
        ("since", "ago"),
        ("where", "lstm-b.log:41, 95% sure"),
        ("proof", "OSError: [Errno 28]"),
    ):
        assert any(part.startswith(label) and words in part for part in below), text
    assert [part[:5] for part in below].index("never") < [part[:5] for part in below].index("fix 1")
    cut = "\n".join(text_of(made) for made in detail_lines(row, 60, NOW, said=False))
    assert row.finding.reading in cut


def test_a_cause_that_hits_one_run_after_another_is_as_old_as_every_other_screen_says() -> None:
    box = box_of(FakeFleet())
    alert = next(one for one in assess_box(box, NOW).alerts if one.id.startswith("finding:"))
    finding = finding_of(box, alert)
    assert finding is not None
    held, found = (
        msgspec.structs.replace(alert, since=NOW - 5),
        msgspec.structs.replace(finding, since=NOW - 134),
    )
    row = AlertRow(box.spec.name, held, finding=found)
    assert "2m14" in text_of(row_line(row, 9, NOW))
    assert any("2m14 ago" in text_of(made) for made in detail_lines(row, 110, NOW, said=True))
    assert AlertRow("lab", Alert("memory", "error", "memory 98%")).began_at is None


def test_the_steps_come_before_what_they_follow_from() -> None:
    box = box_of(FakeFleet())
    alert = next(one for one in assess_box(box, NOW).alerts if one.id.startswith("finding:"))
    row = AlertRow(box.spec.name, alert, finding=finding_of(box, alert))

    made = [text_of(part) for part in detail_lines(row, 56, NOW, said=False)]
    labels = [part[:7].strip() for part in made if part[:7].strip()]
    assert labels == [
        "since",
        "do",
        "never",
        "fix 1",
        "fix 2",
        "fix 3",
        "what",
        "where",
        "now",
        "proof",
    ]


async def test_the_way_out_is_seen_in_the_smallest_terminal() -> None:
    async with running(keys=("a",), size=(60, 20)) as (app, _, __):
        text = screen_text(app)
        assert text.index("never") < text.index("fix 1") < text.index("fix 2") and "fix 3" in text


@pytest.mark.parametrize(("size", "times"), [((200, 50), 1), ((80, 24), 1)])
async def test_the_screen_says_a_reading_once(size: tuple[int, int], times: int) -> None:
    async with running(keys=("a",), size=size) as (app, _, __):
        assert screen_text(app).count("inodes used (bytes 63%)") == times


async def test_pause_connect_and_interval_ask_the_fleet() -> None:
    async with running(keys=("enter",)) as (app, pilot, fleet):
        await pilot.press("P")
        await pilot.press("I")
        fleet.change("vast-demo", link=LinkState.PAUSED)
        await settle(pilot)
        await pilot.press("P")
        fleet.change("vast-demo", link=LinkState.UNREACHABLE)
        await settle(pilot)
        await pilot.press("r")
        assert fleet.told == [
            ("pause", "vast-demo", True),
            ("interval", "vast-demo", 2.0),
            ("pause", "vast-demo", False),
            ("retry", "vast-demo"),
        ]
        assert "connecting to vast-demo" in screen_text(app)


ENDED = (
    FleetEvent(NOW - 600, "lab", "memory 98%", "error", "memory"),
    FleetEvent(NOW - 300, "lab", "memory: over", "info", "memory"),
    FleetEvent(NOW - 200, "vast-demo", "still so", "warn", "x"),
)


def test_an_alert_that_has_ended_says_how_long_it_held() -> None:
    rows = ended_rows(
        Happening(n, e.at, e.box, e.text, e.level, e.about) for n, e in enumerate(ENDED)
    )
    assert [(row.box, row.alert.text, row.alert.since, row.ended_at) for row in rows] == [
        ("lab", "memory 98%", NOW - 600, NOW - 300)
    ]
    text = text_of(row_line(rows[0], 5, NOW))
    assert "✔" in text and "held 5m00" in text and "memory 98%" in text
    told = text_of(detail_lines(rows[0], 60, NOW, said=False)[0])
    assert told.split() == ["was", "memory", "98%"], "it does not hold now"


async def test_what_has_ended_stands_below_and_can_be_hidden() -> None:
    fleet = FakeFleet()
    fleet.push(msgspec.structs.replace(fleet.state, events=ENDED))
    async with running(fleet, keys=("a",)) as (app, pilot, _):
        rows = list(alerts(app).shown.values())
        assert [row.ended_at is not None for row in rows] == [False] * (len(rows) - 1) + [True]
        assert "1 ended" in screen_text(app).splitlines()[0]
        await pilot.press("G", "m")
        await settle(pilot)
        assert fleet.told == []
        assert "it has ended" in screen_text(app)
        await pilot.press("h")
        await settle(pilot)
        assert all(row.ended_at is None for row in list(alerts(app).shown.values()))
        assert "h shows the ended ones" in screen_text(app)


async def test_nothing_holds_although_something_ended() -> None:
    async with running(FleetState((running_box("lab"),), ENDED[:2], NOW), keys=("a",)) as (
        app,
        _,
        __,
    ):
        assert "nothing is wrong" in screen_text(app).splitlines()[0]
        text = screen_text(app)
        assert "held 5m00" in text
        assert "mute" not in text.splitlines()[-1], "there is nothing to mute"


async def test_the_fix_stands_there_and_y_copies_one_step_at_a_time(state_home: Path) -> None:
    async with running(size=(120, 40), keys=("a",)) as (app, pilot, _):
        picked = alerts(app).picked_alert
        assert picked is not None and picked.finding is not None
        text, finding = screen_text(app), picked.finding
        commands = [fix.command for fix in finding.fixes if fix.command]
        assert commands and all(command in text for command in commands)
        assert finding.never is not None and finding.never[:40] in text
        assert text.index(finding.never[:40]) < text.index(commands[-1]), "never above what removes"
        copied = []
        for _ in range(len(commands) + 1):
            await pilot.press("y")
            await settle(pilot)
            copied.append((state_home / "copied.txt").read_text().strip())
        assert copied == [*commands, commands[0]]


@pytest.mark.parametrize(
    ("typed", "seconds", "words"),
    [
        ("07:00", None, "until 07:00"),
        ("30m", 1800.0, "muted "),
        ("soon", 0.0, "not muted: 'soon' is not a time; give one such as 07:00"),
    ],
)
async def test_muting_until_a_time(typed: str, seconds: float | None, words: str) -> None:
    async with running(keys=("a", "U")) as (app, pilot, fleet):
        for _ in range(5):
            await pilot.press("backspace")
        await pilot.press(*typed, "enter")
        await settle(pilot)
        assert words in screen_text(app)
        told = [one[3] for one in fleet.told]
        if seconds is None:
            (got,) = told
            assert isinstance(got, float) and 0 < got <= 86400
            assert time.strftime("%H:%M", time.localtime(NOW + got)) == "07:00"
        else:
            assert told == ([pytest.approx(seconds)] if seconds else [])


def test_a_time_that_is_to_come() -> None:
    evening = time.mktime((2026, 11, 21, 23, 0, 0, 0, 0, -1))
    assert coming_time("07:00", evening) - evening == 8 * 3600
    assert coming_time("23:30", evening) - evening == 1800
    assert coming_time("tomorrow 23:30", evening) - evening == 86400 + 1800
    assert coming_time("2026-11-22 07:00", evening) - evening == 8 * 3600
    assert coming_time("2h", evening) - evening == 7200
    for text in ("", "yesterday 10:00", "-2h", "2h ago", "25:00", "2026-11-20", "now", "x"):
        with pytest.raises(ValueError, match=r"give (one|a time) such as "):
            coming_time(text, evening)


async def test_a_tall_screen_tells_what_happened_on_the_box_of_the_selected_alert_and_the_end_of_its_log() -> (
    None
):
    fleet = FakeFleet()
    told = (FleetEvent(NOW - 90_000, "vast-demo", "an old one", "warn", "x"), *ENDED)
    fleet.push(msgspec.structs.replace(fleet.state, events=told))
    async with running(fleet, size=(200, 50), keys=("a",)) as (app, pilot, _):
        text = screen_text(app)
        assert "vast-demo  what happened" in text and "log  lstm-b.log" in text
        below = text.partition("what happened")[2]
        assert "still so" in below and "memory 98%" not in below, "of this box alone"
        day = time.strftime("%a %H:%M", time.localtime(NOW - 90_000))
        assert f"{day} ▲ an old one" in below, "what is not of today has its day"
        assert below.index("still so") < below.index("an old one"), "newest first"
        height = app.screen.query_one(BoxContext).size.height
        await pilot.press("j")
        await settle(pilot)
        assert f"{alerts(app).target_box}  what happened" in screen_text(app), (
            "it follows the selection"
        )
        assert app.screen.query_one(BoxContext).size.height == height, "and stays where it is"
        await resize(pilot, 80, 24)
        await settle(pilot)
        assert "what happened" not in screen_text(app), "the fix needs the room"
        await pilot.press("g")
        await settle(pilot)
        assert "never" in screen_text(app)


class _Kept:
    """A history that is written a few seconds later than things happen."""

    async def happened(self, wanted: EventFilter, before: int | None, most: int) -> Happenings:
        return Happenings((Happening(1, NOW - 600, "vast-demo", "written down", "warn", "x"),))


async def test_what_is_not_written_down_yet_is_told_all_the_same_and_once() -> None:
    fleet = FakeFleet()
    news = (
        FleetEvent(NOW - 600, "vast-demo", "written down", "warn", "x"),
        FleetEvent(NOW - 2, "vast-demo", "just now", "error", "y"),
    )
    fleet.push(msgspec.structs.replace(fleet.state, events=news))
    async with running(fleet, size=(200, 50)) as (app, pilot, _):
        fleet.chronicle = cast("Chronicle", _Kept())
        await pilot.press("a")
        await app.workers.wait_for_complete()
        await settle(pilot)
        below = screen_text(app).partition("what happened")[2]
        assert below.count("written down") == 1 and below.count("✖ just now") == 1
        assert "×" not in below, "it happened once"


@pytest.mark.parametrize(
    ("room", "above", "height"),
    [
        (47, 10, 24),
        (47, 23, 23),
        (47, 36, 10),
        (47, 37, 0),
        (21, 5, 11),
        (17, 5, 0),
        (0, 0, 0),
        (77, 18, 51),
        (77, 40, 36),
    ],
)
def test_what_stands_below_has_half_of_the_screen_or_what_is_left(
    room: int, above: int, height: int
) -> None:
    assert context_height(room, above) == height


@pytest.mark.parametrize(
    ("room", "above", "height"), [(47, 10, 36), (47, 39, 7), (47, 40, 0), (21, 9, 11)]
)
def test_what_stands_below_a_list_that_never_grows_has_the_rest(
    room: int, above: int, height: int
) -> None:
    assert context_height(room, above, steady=True) == height


async def test_an_alert_says_how_often_it_held_before() -> None:
    fleet = FakeFleet()
    held = next(
        one for one in assess_box(box_of(fleet), NOW).alerts if not one.id.startswith("finding:")
    )
    told = tuple(
        event
        for start in (7200, 3600)
        for event in (
            FleetEvent(NOW - start, "vast-demo", held.text, "warn", held.id),
            FleetEvent(NOW - start + 60, "vast-demo", "over", "info", held.id),
        )
    )
    fleet.push(msgspec.structs.replace(fleet.state, events=told))
    async with running(fleet, size=(120, 34), keys=("a", "j", "j")) as (app, _, __):
        picked = alerts(app).picked_alert
        assert (
            picked is not None and picked.alert.id == held.id and picked.before == (2, NOW - 3540)
        )
        ended = time.strftime("%H:%M", time.localtime(NOW - 3540))
        assert "before 2 times, ended last" in screen_text(app) and ended in screen_text(app)


def box_of(fleet: FakeFleet) -> BoxState:
    found = fleet.state.find_box("vast-demo")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("key", "place", "spot"),
    [
        ("H", "handbook", ScreenPosition(gotcha="U7")),
        (
            "l",
            "log",
            ScreenPosition(
                log="/jobs/demo/logs/lstm-b.log",
                line_no=41,
                text="OSError: [Errno 28] No space left on device: '/workspace/ckpt/lstm-b/.tmp-00812'",
            ),
        ),
        ("i", "platform", None),
        ("c", "curves", None),
    ],
)
async def test_from_a_diagnosis_its_page_and_its_proof_are_one_key_away(
    key: str, place: str, spot: ScreenPosition | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[object, ...]] = []
    async with running(keys=("a",)) as (app, pilot, _):
        monkeypatch.setattr(app, "open_screen", lambda *asked: opened.append(asked))
        await pilot.press(key)
        assert opened == [(place, "vast-demo", *([] if spot is None else [spot]))]
