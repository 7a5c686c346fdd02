"""One declaration per command: it feeds the key binding, the key line, the palette, the help and the page of keys.

A screen says which commands it has in its `KEYS`; nothing else lists keys anywhere. ``python -m rgt_tui.ui.commands``
prints ``docs/screens/keys.md``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from textual.binding import Binding, BindingType


@dataclass(frozen=True)
class Command:
    """One thing a person can do."""

    id: str
    """Stable id, ``place.name``; the key map overrides keys by it."""
    keys: tuple[str, ...]
    """Textual's names of the keys; the first one is shown."""
    title: str
    """At most a few words; the key line shows them."""
    help: str
    """One sentence for the help page and the palette."""
    action: str = ""
    """Textual action; by default the name in `id` with underscores."""
    footer: int = 0
    """Place in the key line, 1 = most important; 0 = not shown there."""
    dangerous: bool = False
    """True when it leads to something that cannot be undone. Never on a bare lowercase letter."""
    priority: bool = False
    """True when it works whatever has the focus."""

    @property
    def does(self) -> str:
        """The Textual action."""
        return self.action or self.id.rpartition(".")[2].replace("-", "_")

    @property
    def shown_key(self) -> str:
        """The first key as a person reads it."""
        return key_name(self.keys[0])

    @property
    def shown_keys(self) -> str:
        """All keys as a person reads them."""
        return "  ".join(key_name(key) for key in self.keys)


_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "colon": ":",
    "escape": "esc",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "comma": ",",
    "full_stop": ".",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "pgup",
    "pagedown": "pgdn",
}


def key_name(key: str) -> str:
    """Return a key as a person reads it: ``?`` for ``question_mark``."""
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    return "+".join([*modifiers, _NAMES.get(last, last)])


def bindings(commands: Iterable[Command]) -> list[BindingType]:
    """Return the Textual bindings of some commands."""
    return [
        Binding(
            ",".join(command.keys),
            command.does,
            command.title,
            show=bool(command.footer),
            key_display=command.shown_key,
            priority=command.priority,
            tooltip=command.help,
            id=command.id,
        )
        for command in commands
    ]


APP: tuple[Command, ...] = (
    Command("app.help", ("question_mark", "f1"), "help",
            "Every key of this screen, and what it does.", "app.help", footer=20),
    Command("app.palette", ("ctrl+p", "colon"), "commands", "Find a command by name.", "app.command_palette"),
    Command("app.screenshot", ("ctrl+s",), "screenshot", "Save the screen as an SVG file.", "app.screenshot"),
    Command("app.theme", ("ctrl+t",), "next theme", "Switch to the next theme.", "app.next_theme"),
    Command("app.quit", ("ctrl+q",), "quit",
            "Quit rgt. Whatever runs on the boxes keeps running.", "app.quit", priority=True),
)  # fmt: skip
"""Work on every screen."""

SCREEN: tuple[Command, ...] = (
    Command("screen.back", ("q",), "back", "Go back to the previous screen."),
    Command("screen.escape", ("escape",), "clear",
            "Clear the filter or search, then go back; on the fleet screen, dismiss the event line. Never quits."),
)  # fmt: skip
"""Work on every screen that shows the fleet."""

MOVE: tuple[Command, ...] = (
    Command("move.down", ("j", "down"), "down", "Next line.", "move(1)"),
    Command("move.up", ("k", "up"), "up", "Previous line.", "move(-1)"),
    Command("move.top", ("g", "home"), "top", "First line.", "move_top"),
    Command("move.bottom", ("G", "end"), "bottom", "Last line; in a log, resume following.", "move_bottom"),
    Command("move.page-down", ("pagedown", "ctrl+d"), "page down", "One page down.", "page(1)"),
    Command("move.page-up", ("pageup", "ctrl+u"), "page up", "One page up.", "page(-1)"),
)  # fmt: skip
"""Work where there are lines to move through. ctrl+d moves; it never deletes."""

BOX_TARGET: tuple[Command, ...] = (
    Command("box.log", ("l",), "log", "The followed log, full screen.", "open_for_box('log')", footer=2),
    Command("box.curves", ("c",), "curves", "The loss curves of the box's runs.", "open_for_box('curves')", footer=3),
    Command("box.phases", ("p",), "phases",
            "The six phases of the box's life and their checks.", "open_for_box('phases')", footer=4),
    Command("box.teardown", ("D",), "tear down",
            "Review what it takes to stop the meter; nothing is sent until you type the name.",
            "open_for_box('teardown')", footer=5, dangerous=True),
    Command("box.platform", ("i",), "platform",
            "What rgt knows of the box's platform: what survives, what bills, every clock.",
            "open_for_box('platform')"),
)  # fmt: skip
"""Work on a box: the selected one on the fleet screen, the shown one elsewhere."""

FLEET: tuple[Command, ...] = (
    Command("fleet.open", ("enter",), "open", "Open the selected box.", footer=1),
    Command("fleet.filter", ("slash",), "filter", "Show only boxes whose name, platform or state matches.", footer=6),
    Command("fleet.sort", ("o",), "sort", "Change the sort order: trouble, name, age, spent, file.", footer=7),
    Command("fleet.next-pane", ("tab",), "next pane",
            "Focus the next pane to scroll it; after the last one, the boxes again.", "next_pane(1)"),
    Command("fleet.previous-pane", ("shift+tab",), "previous pane", "Focus the previous pane.", "next_pane(-1)"),
    Command("fleet.answer", ("A",), "answer", "Answer a question from a box: a new host key, a password.", "answer"),
)  # fmt: skip

PLATFORM: tuple[Command, ...] = (
    Command("platform.next-pane", ("tab",), "next column", "Give the keys to the other column.", "next_pane(1)"),
    Command("platform.previous-pane", ("shift+tab",), "previous column",
            "Give the keys to the other column.", "next_pane(-1)"),
)  # fmt: skip
"""Work on the page of a platform."""

FIRST: tuple[Command, ...] = (
    Command("first.read", ("enter",), "read", "You have read it: it does not come up again.", "read", footer=1),
    Command("first.whole", ("i",), "whole page", "Show all that is known of the platform.", "whole", footer=2),
)  # fmt: skip
"""Work on what is said when a platform is first met."""

HANDBOOK: tuple[Command, ...] = (
    Command("handbook.search", ("slash",), "search", "Search by id, words, or a line of a log.", footer=1),
    Command("handbook.copy-fix", ("y",), "copy fix", "Copy the steps of the selected page.", footer=2),
    Command("handbook.next-pane", ("tab",), "list or page", "Give the keys to the page, and back.", footer=3),
)  # fmt: skip
"""Work on the pages of known failures."""

BOX_CARE: tuple[Command, ...] = (
    Command("box.alerts", ("a",), "alerts",
            "Active alerts, since when they hold, and what to do; mute them there.",
            "open_for_box('alerts')", footer=9),
    Command("box.handbook", ("H",), "handbook",
            "Known failures, what this box shows first: the proof, the cause, the fix.", "open_for_box('handbook')"),
    Command("box.connect", ("r",), "connect now",
            "Connect to the box now; restart the fleet if it failed to start.", "connect"),
    Command("box.pause", ("P",), "pause", "Disconnect from the box, or reconnect.", "pause"),
    Command("box.interval", ("I",), "interval", "Sample the box every 1, 2, 5, 15 or 60 seconds.", "interval"),
)  # fmt: skip
"""How rgt treats a box; nothing of it touches what runs there."""

REPLAY: tuple[Command, ...] = (
    Command("replay.hold", ("space",), "pause replay", "In a replay: pause or resume.", "hold_replay"),
    Command("replay.faster", ("plus", "equals_sign"), "faster", "In a replay: double the speed.", "pace_replay(2)"),
    Command("replay.slower", ("minus",), "slower", "In a replay: halve the speed.", "pace_replay(0.5)"),
)  # fmt: skip
"""Work on a recording; a running fleet's time is nobody's to hold."""

ALERTS: tuple[Command, ...] = (
    Command("alerts.open", ("enter",), "open", "Open the box of the selected alert.", footer=1),
    Command("alerts.mute", ("m",), "mute 1 h", "Mute the selected alert for an hour.", "mute(3600)", footer=2),
    Command("alerts.mute-long", ("M",), "mute", "Mute it until it clears.", "mute(-1)", footer=3),
    Command("alerts.unmute", ("u",), "unmute", "Unmute it.", "mute(0)", footer=4),
)  # fmt: skip
"""Work on the selected alert."""

LOG_LINES: tuple[Command, ...] = (
    Command("log.next-error", ("e",), "next error", "Next line with an error.", "next_error(1)", footer=6),
    Command("log.previous-error", ("E",), "previous error", "Previous line with an error.", "next_error(-1)"),
    Command("log.follow", ("F", "f"), "follow", "Resume following the newest line.", "follow", footer=7),
)  # fmt: skip
"""Work where a log is shown."""

BOX: tuple[Command, ...] = (
    Command("box.next-pane", ("tab",), "next pane", "Focus the next pane.", "next_pane(1)"),
    Command("box.previous-pane", ("shift+tab",), "previous pane", "Focus the previous pane.", "next_pane(-1)"),
    Command("box.next-log", ("right_square_bracket",), "next log", "Show the next log of the box.", "next_log(1)"),
    Command("box.previous-log", ("left_square_bracket",), "previous log",
            "Show the previous log of the box.", "next_log(-1)"),
)  # fmt: skip

LOG: tuple[Command, ...] = (
    Command("log.search", ("slash",), "search", "Search the log; an empty search clears it.", footer=2),
    Command("log.next-match", ("n",), "next match", "Next matching line.", "next_match(1)", footer=3),
    Command("log.previous-match", ("N",), "previous match", "Previous matching line.", "next_match(-1)"),
    Command("log.wrap", ("w",), "wrap", "Wrap or truncate long lines.", "toggle_wrap"),
    Command("log.left", ("left",), "left", "Scroll truncated lines left.", "sideways(-1)"),
    Command("log.right", ("right",), "right", "Scroll truncated lines right.", "sideways(1)"),
    Command("box.next-log", ("right_square_bracket",), "next log", "Show the next log of the box.", "next_log(1)"),
    Command("box.previous-log", ("left_square_bracket",), "previous log",
            "Show the previous log of the box.", "next_log(-1)"),
)  # fmt: skip

SCREENS: dict[str, tuple[str, str, str]] = {
    "fleet": ("Fleet", "rgt_tui.ui.screens.fleet", "FleetScreen"),
    "box": ("Box", "rgt_tui.ui.screens.box", "BoxScreen"),
    "log": ("Log", "rgt_tui.ui.screens.log", "LogScreen"),
    "curves": ("Curves", "rgt_tui.ui.screens.curves", "CurvesScreen"),
    "phases": ("Phases", "rgt_tui.ui.screens.lifecycle", "LifecycleScreen"),
    "alerts": ("Alerts", "rgt_tui.ui.screens.alerts", "AlertsScreen"),
    "teardown": ("Tear down", "rgt_tui.ui.screens.teardown", "TeardownScreen"),
    "platform": ("Platform", "rgt_tui.ui.screens.platform", "PlatformScreen"),
    "handbook": ("Handbook", "rgt_tui.ui.screens.handbook_pages", "HandbookScreen"),
    "first contact": ("First contact", "rgt_tui.ui.screens.platform", "FirstContactScreen"),
}
"""Title, module and class of each screen; all but the fleet's take ``(fleet, box_name)``."""


def screen_class(place: str) -> Any:
    """Import the class of a screen."""
    _, module, name = SCREENS[place]
    return getattr(importlib.import_module(module), name)


def commands_by_screen() -> list[tuple[str, tuple[Command, ...]]]:
    """Return the commands of every screen, those of all screens first."""
    screens = [(title, tuple(screen_class(place).KEYS)) for place, (title, *_) in SCREENS.items()]
    return [("Every screen", (*SCREEN, *APP)), *screens]


def keys_page() -> str:
    """Return the Markdown page of all keys."""
    out = [
        "# Keys",
        "",
        "This page is generated from the commands themselves (`python -m rgt_tui.ui.commands`). Every command",
        "is also in the command palette (`ctrl+p` or `:`), and what the key line shows can be clicked.",
    ]
    for title, commands in commands_by_screen():
        out += ["", f"## {title}", "", "| key | command | what it does | id |", "|---|---|---|---|"]
        for command in commands:
            keys = " ".join(f"`{key}`" for key in command.shown_keys.split("  "))
            name = f"**{command.title}**" if command.dangerous else command.title
            out.append(f"| {keys} | {name} | {command.help} | `{command.id}` |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(keys_page(), end="")
