"""A person's theme and keys: taken as written, or refused with file, key and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.ui import (
    Preferences,
    PreferencesError,
    RgtApp,
    commands_by_screen,
    is_key,
    parse_preferences,
    preferences_path,
    read_preferences,
    remember_theme,
    with_theme,
)
from rgt_tui.ui.screens import FleetAwareScreen, HelpPanel
from tests.ui.fakes import FakeFleet
from tests.ui.snap import screen_text, settle

REFUSED = {
    "theme": ('[ui]\ntheme = "x"', "[ui] theme: no theme is called 'x'; there are: rgt-dark"),
    "a key of [ui]": ("[ui]\ncolour = 1", "[ui] has no key 'colour'"),
    "a table": ("[key]", "no table is called 'key'; there are [ui] and [keys]"),
    "no table": ("ui = 1", "ui is a table"),
    "no TOML": ("[ui", "this is not TOML"),
    "id": ('[keys]\n"box.lgo" = "x"', "\"box.lgo\": no command has this id; did you mean 'box.log'?"),
    "value": ('[keys]\n"box.log" = 1', '"box.log": give a key'),
    "empty": ('[keys]\n"box.log" = []', '"box.log": give a key'),
    "hostile": ('[keys]\n"box.log" = "a\\u001b[31m"', "is not a key; write one as docs/screens/keys.md does"),
    "alias": ('[keys]\n"box.log" = "ctrl+m"', "ctrl+m is enter to a terminal"),
    "taken": ('[keys]\n"box.log" = "ctrl+b"', "ctrl+b cannot be used: tmux takes it"),
    "clash on one screen": (
        '[keys]\n"box.log" = "c"', "\"box.log\": c is box.curves on the screen 'Fleet' already; choose another key"
    ),
    "clash with every screen": ('[keys]\n"fleet.sort" = "y"', "y is screen.copy on the screen 'Fleet' already"),
    "no such key": ('[keys]\n"box.log" = "pageupp"', "'pageupp' is not a key"),
    "no such sign": ('[keys]\n"box.log" = "procent_sign"', "'procent_sign' is not a key"),
    "a capital with ctrl": ('[keys]\n"box.log" = "ctrl+L"', "'ctrl+L' is not a key"),
    "dangerous": ('[keys]\n"box.teardown" = "x"', "only a capital letter or a key with ctrl, not 'x'"),
    "dangerous digit": ('[keys]\n"box.teardown" = "1"', "only a capital letter"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_is_refused_with_file_key_and_what_to_do(case: str) -> None:
    text, words = REFUSED[case]
    with pytest.raises(PreferencesError) as refused:
        parse_preferences(text, "~/.config/rgt/ui.toml")
    assert str(refused.value).startswith("~/.config/rgt/ui.toml:")
    assert words in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_a_file_over_the_limit_is_refused_and_not_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "ui.toml"
    path.write_text("# key\n" * 200_000 + '[keys]\n"box.log" = "L"\n')
    with pytest.raises(PreferencesError, match="it is larger than 1,048,576 bytes"):
        read_preferences(path)
    assert "it is larger than 1,048,576 bytes" in remember_theme(path, "rgt-light")
    assert path.stat().st_size > 1 << 20


def test_every_fault_is_said_with_its_line() -> None:
    text = """# mine
[ui]
theme = "rgt-drak"
colour = 1

[keys]
"move.down" = ["j", "down"]
'box.lgo' = "x"   # a word that is wrong
box.curves = "pageupp"
"box.log" = "c"
"fleet.sort" = [
  "y",
]
[kyes]
"""
    with pytest.raises(PreferencesError) as refused:
        parse_preferences(text, "ui.toml")
    rows = str(refused.value).split("\n")
    assert [row.split(" ")[0] for row in rows] == [
        f"ui.toml:{number}:" for number in (14, 4, 3, 8, 9, 10, 11)
    ]
    assert "did you mean 'box.log'?" in rows[3]
    assert "c is box.curves on the screen 'Fleet' already" in rows[5]
    assert "y is screen.copy" in rows[6]


def test_an_id_need_not_stand_in_quotes() -> None:
    found = parse_preferences('[keys]\nbox.log = "ctrl+l"\n[keys.fleet]\nsort = "%"\n', "ui.toml")
    assert found.keys == {"box.log": ("ctrl+l",), "fleet.sort": ("percent_sign",)}


def test_every_key_that_a_command_has_can_be_written_into_the_file() -> None:
    shown = {
        key for _, commands in commands_by_screen() for command in commands for key in command.keys
    }
    assert [key for key in shown if not is_key(key)] == []
    assert (
        is_key("f12") and is_key("alt+x") and is_key("percent_sign") and not is_key("ctrl+nosuch")
    )


def test_keys_are_written_as_they_are_read(tmp_path: Path) -> None:
    text = (
        '[ui]\ntheme = "rgt-light"\n[keys]\n"box.log" = "c"\n"box.curves" = ["l", "ctrl+l", "%"]\n'
    )
    text += '"box.teardown" = "Z"'
    found = parse_preferences(text, "x")
    assert found.theme == "rgt-light"
    assert found.keys == {
        "box.log": ("c",),
        "box.curves": ("l", "ctrl+l", "percent_sign"),
        "box.teardown": ("Z",),
    }
    assert read_preferences(tmp_path / "none") == Preferences()
    with pytest.raises(PreferencesError, match="a directory, not a file"):
        read_preferences(tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[ui]\ntheme = "T"\n'),
        ("[keys]\na = 1", '[keys]\na = 1\n[ui]\ntheme = "T"\n'),
        (
            "# mine\n[ui] # here\ntheme = 'x' # that\n[keys]\n",
            '# mine\n[ui] # here\ntheme = "T" # that\n[keys]\n',
        ),
        ("[ui]\n\n[keys]\n", '[ui]\ntheme = "T"\n\n[keys]\n'),
        ('[keys]\ntheme = "x"\n[ui]\n', '[keys]\ntheme = "x"\n[ui]\ntheme = "T"\n'),
    ],
)
def test_a_theme_is_put_in_and_everything_else_stays(before: str, after: str) -> None:
    assert with_theme(before, "T") == after


def test_a_file_that_rgt_cannot_change_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ui.toml"
    for text in ("ui.theme = 'x'\n", "[ui\n", "ui = {theme='x'}\n"):
        path.write_text(text)
        said = remember_theme(path, "rgt-light")
        assert said.startswith(f"theme rgt-light, until rgt ends: {path}: ")
        assert path.read_text() == text
    linked = tmp_path / "dotfiles.toml"
    linked.write_text("# mine\n")
    path.unlink()
    path.symlink_to(linked)
    assert remember_theme(path, "rgt-light") == f"theme rgt-light; remembered in {path}"
    assert path.is_symlink()
    assert linked.read_text() == '# mine\n[ui]\ntheme = "rgt-light"\n'


async def test_chosen_keys_act_and_are_shown_and_the_theme_is_remembered(tmp_path: Path) -> None:
    path = preferences_path({"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)})
    chosen = parse_preferences(
        '[ui]\ntheme = "rgt-contrast"\n[keys]\n"box.log" = "c"\n"box.curves" = "l"\n"box.teardown" = "Z"',
        "x",
    )
    app = RgtApp(FakeFleet, preferences=chosen, remember=path)
    async with app.run_test(size=(120, 60)) as pilot:
        await settle(pilot)
        assert app.theme == "rgt-contrast"
        assert "c log   l curves   p phases   Z tear down" in screen_text(app)
        await pilot.press("question_mark")
        await settle(pilot)
        shown = {
            row.name: row.lead for row in app.screen.query_one(HelpPanel).shown_rows if row.command
        }
        assert (shown["log"], shown["curves"], shown["tear down"]) == ("c", "l", "Z")
        await pilot.press("escape", "D")
        await settle(pilot)
        for key, place in (("l", "curves"), ("c", "log")):
            await pilot.press(key)
            await settle(pilot)
            assert isinstance(app.screen, FleetAwareScreen)
            assert place == app.screen.PLACE
            await pilot.press("q")
            await settle(pilot)
        await pilot.press("ctrl+t")
        await settle(pilot)
        assert read_preferences(path).theme == app.theme == "rgt-colour-blind"
        assert f"theme rgt-colour-blind; remembered in {path}"[:100] in screen_text(app)
