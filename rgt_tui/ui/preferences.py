"""The person's theme and keys, read from ``ui.toml`` next to their fleet file.

::

    [ui]
    theme = "rgt-light"

    [keys]
    "box.log" = "L"
    "move.down" = ["j", "down", "ctrl+n"]

The ids of the commands are in ``docs/screens/keys.md``. A file with an error is rejected as a
whole: half a key map would do something else than the person expects.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace
from textual.keys import REPLACED_KEYS, Keys, key_to_character

from rgt_tui.files import config_directory, locked_file, read_bounded, replace_file
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct
from rgt_tui.ui.commands import APP, SCREEN, Command, commands_by_screen, key_name, key_of
from rgt_tui.ui.enduring import shorten_path
from rgt_tui.ui.themes import THEMES

MOST_BYTES = 1 << 20
ALIASES = {
    "ctrl+i": "tab", "ctrl+m": "enter", "ctrl+j": "enter", "ctrl+h": "backspace",
    "ctrl+left_square_bracket": "escape",
}  # fmt: skip
"""Keys that terminals cannot distinguish from another key."""
TAKEN_KEYS = {
    "ctrl+c": "it shows how to leave",
    "ctrl+z": "shells suspend a program with it",
    "ctrl+a": "screen takes it",
    "ctrl+b": "tmux takes it",
}
DIALOGS = frozenset({"Tear down"})
"""Screens without the commands of all screens."""


class PreferencesError(Exception):
    """``ui.toml`` cannot be used.

    The message names file, line and key of each error, and what to do.
    """


class Preferences(FrozenStruct):
    """A person's choices."""

    theme: str | None = None
    keys: Mapping[str, tuple[str, ...]] = {}
    """Textual's names of the keys, by command id."""

    def apply_keys(self, command: Command) -> Command:
        """Return a command with the keys that were chosen for it."""
        keys = self.keys.get(command.id)
        if keys is None:
            return command
        return replace(command, keys=keys)

    @property
    def keymap(self) -> dict[str, str]:
        """The same keys in Textual's format."""
        return {id_: ",".join(keys) for id_, keys in self.keys.items()}


UNCHANGED = Preferences()


def preferences_path(env: Mapping[str, str]) -> Path:
    """Return the path of the file, whether it exists or not."""
    return config_directory(env) / "ui.toml"


def read_preferences(path: Path) -> Preferences:
    """Read the file; a missing file means the defaults.

    Raises:
        PreferencesError: It cannot be read, is not TOML, or has an invalid value.
    """
    try:
        text = read_bounded(path, MOST_BYTES).decode()
    except FileNotFoundError:
        return Preferences()
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            why = error.strerror
        else:
            why = translate("it is not UTF-8")
        raise PreferencesError(
            translate(
                "{path}: {why}; correct it, or move it away", path=shorten_path(path), why=why
            )
        ) from error
    return parse_preferences(text, shorten_path(path))


def parse_preferences(text: str, name: str) -> Preferences:
    """Parse the text of the file called `name`.

    Raises:
        PreferencesError: As in `read_preferences`.
    """
    # imported here because most people have no such file, and the first frame waits for this
    import tomllib

    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PreferencesError(
            translate("{name}: this is not TOML: {error}", name=name, error=error)
        ) from error
    faults = _FaultList(text, name)
    for key in found:
        if key not in {"ui", "keys"}:
            faults.add_fault(
                (key,), translate("no table is called {key!r}; there are [ui] and [keys]", key=key)
            )
    theme = _parse_theme(found.get("ui", {}), faults)
    keys = _parse_keys(found.get("keys", {}), faults)
    if faults.said:
        raise PreferencesError("\n".join(faults.said))
    return Preferences(theme, keys)


_TABLE = re.compile(r"[ \t]*\[[ \t]*(?P<keys>[^\]\n]+?)[ \t]*\]")
_ENTRY = re.compile(r"[ \t]*(?P<keys>[A-Za-z0-9_.\-\"' \t+]+?)[ \t]*=")


class _FaultList:
    """The errors in the file, in the order in which they were found, each with its line."""

    def __init__(self, text: str, name: str) -> None:
        self.said: list[str] = []
        self._name = name
        self._lines: dict[str, int] = {}
        """First line of each table and key, written without quotes and joined with dots."""
        table = ""
        for number, row in enumerate(text.split("\n"), 1):
            if (found := _TABLE.match(row)) is not None:
                table = where = _strip_quotes(found["keys"])
            elif (found := _ENTRY.match(row)) is not None:
                where = f"{table}.{_strip_quotes(found['keys'])}".lstrip(".")
            else:
                continue
            # A nested key gives its tables a line, too; the first one in the file counts.
            while where and where not in self._lines:
                self._lines[where] = number
                where = where.rpartition(".")[0]

    def add_fault(self, where: tuple[str, ...], words: str) -> None:
        """Add an error for a table or one of its keys.

        For unusual TOML syntax the line is left out.
        """
        number = self._lines.get(_strip_quotes(".".join(where)))
        line = "" if number is None else f":{number}"
        table, *key = where
        place = ""
        if table == "keys" and key:
            place = f'[{table}] "{key[0]}": '
        self.said.append(f"{self._name}{line}: {place}{words}")


def _strip_quotes(keys: str) -> str:
    return re.sub(r"[\"' \t]", "", keys)


def _parse_theme(table: object, faults: _FaultList) -> str | None:
    if not isinstance(table, dict):
        faults.add_fault(("ui",), translate('ui is a table: [ui] with theme = "rgt-dark"'))
        return None
    for key in table:
        if key != "theme":
            faults.add_fault(
                ("ui", key), translate("[ui] has no key {key!r}; there is: theme", key=key)
            )
    theme = table.get("theme")
    names = [one.name for one in THEMES]
    if theme is not None and theme not in names:
        words = translate(
            "[ui] theme: no theme is called {theme!r}; there are: {names}",
            theme=str(theme),
            names=", ".join(names),
        )
        faults.add_fault(("ui", "theme"), words)
        return None
    return theme


def _flatten_table(table: Mapping[str, object], before: str = "") -> Iterable[tuple[str, object]]:
    """Yield the ids with their values: in TOML ``box.log`` without quotes is a nested table."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten_table(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _parse_keys(table: object, faults: _FaultList) -> dict[str, tuple[str, ...]]:
    if not isinstance(table, dict):
        faults.add_fault(
            ("keys",), translate('keys is a table: [keys] with lines such as "box.log" = "L"')
        )
        return {}
    # The commands of all screens are imported below; without chosen keys the start must not wait.
    if not table:
        return {}
    screens = commands_by_screen()
    known = {command.id: command for _, commands in screens for command in commands}
    chosen: dict[str, tuple[str, ...]] = {}
    for id_, value in _flatten_table(table):
        where = ("keys", id_)
        if id_ not in known:
            near = difflib.get_close_matches(id_, known, 1)
            if near:
                hint = translate("did you mean {near!r}?", near=near[0])
            else:
                hint = translate("docs/screens/keys.md lists them")
            faults.add_fault(where, translate("no command has this id; {hint}", hint=hint))
            continue
        shown = [value] if isinstance(value, str) else value
        if (
            not isinstance(shown, list)
            or not shown
            or not all(isinstance(key, str) and key for key in shown)
        ):
            faults.add_fault(where, translate('give a key, such as "L", or a list of keys'))
            continue
        keys = tuple(key_of(key) for key in shown)
        against = [words for key in keys if (words := _why_not(key, known[id_])) is not None]
        for words in against:
            faults.add_fault(where, words)
        if not against:
            chosen[id_] = keys
    _refuse_clashes(screens, chosen, faults)
    return chosen


def _why_not(key: str, command: Command) -> str | None:
    """Return why a key is not allowed: it cannot arrive, or it would be dangerous.

    None if it is.
    """
    shown = key_name(key)
    if key in ALIASES:
        return translate(
            "{shown} is {aliases} to a terminal; choose another key",
            shown=shown,
            aliases=key_name(ALIASES[key]),
        )
    if key in TAKEN_KEYS:
        return translate(
            "{shown} cannot be used: {taken}; choose another key",
            shown=shown,
            taken=translate(TAKEN_KEYS[key]),
        )
    if not is_key(key):
        return translate(
            "{shown!r} is not a key; write one as docs/screens/keys.md does", shown=shown
        )
    if command.dangerous and len(key) == 1 and not key.isupper():
        return translate(
            "{title!r} leads to an action that cannot be undone: only a capital letter "
            "or a key with ctrl, not {shown!r}",
            title=command.title,
            shown=shown,
        )
    return None


_SPELLED = re.compile(r"((?:(?:ctrl|shift|alt|super|meta|hyper)\+)*)([A-Za-z0-9_]+)")


def is_key(key: str) -> bool:
    """Return whether Textual has a key of this name."""
    found = _SPELLED.fullmatch(key)
    if found is None:
        return False
    name = found[2]
    if len(name) == 1:
        # they arrive as A and as ctrl+a
        return found[1] != "shift+" and not (name.isupper() and found[1])
    named = name in REPLACED_KEYS or key_to_character(name) is not None
    return named or name in {one.value for one in Keys}


def find_clashes(
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
    screens: Sequence[tuple[str, Sequence[Command]]],
    chosen: Mapping[str, tuple[str, ...]],
    faults: _FaultList,
) -> None:
    before, told = find_clashes(screens, {}), set()
    for title, key, one, other in find_clashes(screens, chosen):
        if (title, key, one, other) in before or (key, one, other) in told:
            continue  # it clashes by default, or was already reported for another screen
        told.add((key, one, other))
        # The fault is reported at the key that the person wrote.
        mine, theirs = (one, other) if one in chosen else (other, one)
        faults.add_fault(
            ("keys", mine),
            translate(
                "{key} is {theirs} on the screen {title!r} already; choose another key, or give "
                "{theirs} another one, too",
                key=key_name(key),
                theirs=theirs,
                title=title,
            ),
        )


# The standard library only reads TOML, and writing all of it would lose the person's comments.
_THEME_LINE = re.compile(r"(?m)^([ \t]*theme[ \t]*=[ \t]*)(?:\"[^\"\n]*\"|'[^'\n]*')")
_UI_TABLE = re.compile(r"(?m)^[ \t]*\[[ \t]*ui[ \t]*\][^\n]*$")
_NEXT_TABLE = re.compile(r"(?m)^[ \t]*\[")


def with_theme(text: str, theme: str) -> str:
    """Return the text of the file with another theme; everything else stays unchanged."""
    table = _UI_TABLE.search(text)
    if table is None:
        if text and not text.endswith("\n"):
            text += "\n"
        return f'{text}[ui]\ntheme = "{theme}"\n'
    after = _NEXT_TABLE.search(text, table.end())
    if after is not None:
        end = after.start()
    else:
        end = len(text)
    part = text[table.end() : end]
    changed, count = _THEME_LINE.subn(lambda found: f'{found[1]}"{theme}"', part, count=1)
    if not count:
        changed = f'\ntheme = "{theme}"{part}'
    return text[: table.end()] + changed + text[end:]


def remember_theme(path: Path, theme: str) -> str:
    """Write a theme into the file; return a message. An unreadable file is left alone.

    May block.
    """
    import tomllib

    name = shorten_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Another rgt may save its theme at the same time.
        with locked_file(path):
            text = ""
            if path.exists():
                text = read_bounded(path, MOST_BYTES).decode()
            changed = with_theme(text, theme)
            # Unusual TOML may have its theme where the expressions do not look, so the result is
            # parsed.
            if tomllib.loads(changed).get("ui", {}).get("theme") != theme:
                raise ValueError(translate("rgt cannot change [ui] theme there: write it yourself"))
            # resolve, because it may be a link into the person's dotfiles
            replace_file(path.resolve(), changed.encode())
    except (OSError, ValueError) as error:
        return translate(
            "theme {theme}, until rgt ends: {name}: {error}", theme=theme, name=name, error=error
        )
    return translate("theme {theme}; remembered in {name}", theme=theme, name=name)
