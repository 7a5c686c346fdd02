"""A person's own theme and keys, in ``ui.toml`` beside their fleet file.

::

    [ui]
    theme = "rgt-light"

    [keys]
    "box.log" = "L"
    "move.down" = ["j", "down", "ctrl+n"]

The ids of the commands stand in ``docs/screens/keys.md``. A file that cannot be used is refused whole: half a key map
would do something else than what the person has in mind.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rgt_tui.files import alone, config_directory, publish
from rgt_tui.ui.commands import APP, SCREEN, Command, commands_by_screen, key_name, key_of
from rgt_tui.ui.enduring import short
from rgt_tui.ui.notation import clean
from rgt_tui.ui.themes import THEMES

MOST_BYTES = 1 << 20
ALIASES = {
    "ctrl+i": "tab", "ctrl+m": "enter", "ctrl+j": "enter", "ctrl+h": "backspace", "ctrl+left_square_bracket": "escape",
}  # fmt: skip
"""What a terminal cannot tell from another key."""
TAKEN = {
    "ctrl+c": "it says how to leave",
    "ctrl+z": "a shell suspends rgt with it",
    "ctrl+a": "screen takes it",
    "ctrl+b": "tmux takes it",
}
DIALOGS = frozenset({"Tear down"})
"""Screens on which the commands of all screens do not work."""


class PreferencesError(Exception):
    """``ui.toml`` cannot be used; the message names file and key, and what to do."""


@dataclass(frozen=True)
class Preferences:
    """What a person has chosen."""

    theme: str | None = None
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Id of a command → Textual's names of the keys that run it."""

    def keyed(self, command: Command) -> Command:
        """Return a command with the keys that were chosen for it."""
        keys = self.keys.get(command.id)
        return command if keys is None else replace(command, keys=keys)

    @property
    def keymap(self) -> dict[str, str]:
        """The same keys as Textual wants them."""
        return {id_: ",".join(keys) for id_, keys in self.keys.items()}


UNCHANGED = Preferences()


def preferences_path(env: Mapping[str, str]) -> Path:
    """Return where the file stands, whether it exists or not."""
    return config_directory(env) / "ui.toml"


def read_preferences(path: Path) -> Preferences:
    """Read the file; one that is not there says nothing.

    Raises:
        PreferencesError: it cannot be read, is not TOML, or says something that cannot be.
    """
    try:
        text = path.read_bytes()[: MOST_BYTES + 1].decode()
    except FileNotFoundError:
        return Preferences()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PreferencesError(f"{short(path)}: {why}; correct it, or move it away") from error
    return parse_preferences(text, short(path))


def parse_preferences(text: str, name: str) -> Preferences:
    """Read the text of the file called `name`.

    Raises:
        PreferencesError: as `read_preferences`.
    """
    import tomllib  # most people have no such file, and the first frame waits for this

    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PreferencesError(f"{name}: this is not TOML: {clean(str(error))}") from error
    for key in found:
        if key not in {"ui", "keys"}:
            raise PreferencesError(f"{name}: no table is called {clean(key)!r}; there are [ui] and [keys]")
    return Preferences(_theme(found.get("ui", {}), name), _keys(found.get("keys", {}), name))


def _theme(table: object, name: str) -> str | None:
    if not isinstance(table, dict):
        raise PreferencesError(f'{name}: ui is a table: [ui] with theme = "rgt-dark"')
    for key in table:
        if key != "theme":
            raise PreferencesError(f"{name}: [ui] has no key {clean(key)!r}; there is: theme")
    theme = table.get("theme")
    names = [one.name for one in THEMES]
    if theme is not None and theme not in names:
        raise PreferencesError(
            f"{name}: [ui] theme: no theme is called {clean(str(theme))!r}; there are: {', '.join(names)}"
        )
    return theme


def _keys(table: object, name: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(table, dict):
        raise PreferencesError(f'{name}: keys is a table: [keys] with lines such as "box.log" = "L"')
    if not table:
        return {}
    screens = commands_by_screen()
    known = {command.id: command for _, commands in screens for command in commands}
    chosen: dict[str, tuple[str, ...]] = {}
    for id_, value in table.items():
        where = f'{name}: [keys] "{clean(id_)}"'
        if id_ not in known:
            near = difflib.get_close_matches(id_, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else "docs/screens/keys.md lists them"
            raise PreferencesError(f"{where}: no command has this id; {hint}")
        shown = [value] if isinstance(value, str) else value
        if not isinstance(shown, list) or not shown or not all(isinstance(key, str) and key for key in shown):
            raise PreferencesError(f'{where}: give a key, such as "L", or a list of keys')
        keys = tuple(key_of(key) for key in shown)
        for key in keys:
            _may_be(key, known[id_], where)
        chosen[id_] = keys
    _refuse_clashes(screens, chosen, name)
    return chosen


def _may_be(key: str, command: Command, where: str) -> None:
    """Refuse a key that cannot arrive, or must not lead to danger."""
    shown = clean(key_name(key))
    if key in ALIASES:
        raise PreferencesError(
            f"{where}: {shown} is {key_name(ALIASES[key])} to a terminal; choose another key"
        )
    if key in TAKEN:
        raise PreferencesError(f"{where}: {shown} cannot be had: {TAKEN[key]}; choose another key")
    if "," in key or not re.fullmatch(r"(?:(?:ctrl|shift|alt|super|meta|hyper)\+)*[A-Za-z0-9_]+", key):
        raise PreferencesError(f"{where}: {shown!r} is no key; write one as docs/screens/keys.md does")
    if command.dangerous and len(key) == 1 and not key.isupper():
        raise PreferencesError(
            f"{where}: {command.title!r} leads to what cannot be undone: "
            f"only a capital letter or a key with ctrl, not {shown!r}"
        )


def clashes(
    screens: Iterable[tuple[str, Sequence[Command]]], keys: Mapping[str, tuple[str, ...]]
) -> list[tuple[str, str, str, str]]:
    """Return ``(screen, key, command, command)`` wherever a key has two meanings on one screen."""
    out = []
    for title, own in screens:
        shared = () if title == "Every screen" or title in DIALOGS else (*SCREEN, *APP)
        met: dict[str, str] = {}
        for command in (*own, *shared):
            for key in keys.get(command.id, command.keys):
                if met.setdefault(key, command.id) != command.id:
                    out.append((title, key, met[key], command.id))
    return out


def _refuse_clashes(
    screens: Sequence[tuple[str, Sequence[Command]]], chosen: Mapping[str, tuple[str, ...]], name: str
) -> None:
    before = clashes(screens, {})
    for title, key, one, other in clashes(screens, chosen):
        if (title, key, one, other) in before:
            continue  # not the person's doing
        mine, theirs = (one, other) if one in chosen else (other, one)
        raise PreferencesError(
            f'{name}: [keys] "{mine}": {key_name(key)} is {theirs} on the screen {title!r} already; '
            f"choose another key, or give {theirs} another one, too"
        )


_THEME_LINE = re.compile(r"(?m)^([ \t]*theme[ \t]*=[ \t]*)(?:\"[^\"\n]*\"|'[^'\n]*')")
_UI_TABLE = re.compile(r"(?m)^[ \t]*\[[ \t]*ui[ \t]*\][^\n]*$")
_NEXT_TABLE = re.compile(r"(?m)^[ \t]*\[")


def with_theme(text: str, theme: str) -> str:
    """Return the text of the file with another theme; everything else stays as it is."""
    table = _UI_TABLE.search(text)
    if table is None:
        return f'{text}{chr(10) if text and not text.endswith(chr(10)) else ""}[ui]\ntheme = "{theme}"\n'
    after = _NEXT_TABLE.search(text, table.end())
    end = after.start() if after is not None else len(text)
    part = text[table.end() : end]
    changed, count = _THEME_LINE.subn(lambda found: f'{found[1]}"{theme}"', part, count=1)
    if not count:
        changed = f'\ntheme = "{theme}"{part}'
    return text[: table.end()] + changed + text[end:]


def remember_theme(path: Path, theme: str) -> str:
    """Write a theme into the file; return what to say of it. What cannot be read is left alone. It may block."""
    import tomllib

    name = short(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with alone(path):
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            changed = with_theme(text, theme)
            if tomllib.loads(changed).get("ui", {}).get("theme") != theme:
                raise ValueError("rgt cannot change [ui] theme there: write it yourself")
            publish(path.resolve(), changed.encode())  # it may be a link to the person's dotfiles
    except (OSError, ValueError) as error:
        return f"theme {theme}, until rgt ends: {name}: {clean(str(error))}"
    return f"theme {theme}; remembered in {name}"
