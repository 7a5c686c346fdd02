"""One declaration per command: it feeds the key binding, the key line, the palette, and the help page.

A screen says which commands it has in its `KEYS`; nothing else lists keys anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
    Command(
        "app.help",
        ("question_mark", "f1"),
        "help",
        "Every key of this screen, and what it does.",
        "app.help",
        footer=20,
    ),
    Command(
        "app.palette", ("ctrl+p", "colon"), "commands", "Find a command by its name.", "app.command_palette"
    ),
    Command("app.screenshot", ("ctrl+s",), "screenshot", "Save the screen as an SVG file.", "app.screenshot"),
    Command("app.theme", ("ctrl+t",), "next theme", "Use the next theme.", "app.next_theme"),
    Command(
        "app.quit",
        ("ctrl+q",),
        "quit",
        "Leave rgt. What runs on the boxes goes on without it.",
        "app.quit",
        priority=True,
    ),
)
"""Work on every screen."""

SCREEN: tuple[Command, ...] = (
    Command("screen.back", ("q",), "back", "Back to the screen before this one."),
    Command(
        "screen.escape",
        ("escape",),
        "clear",
        "Clear the filter or search, then go back; on the fleet, the event line is seen. Never quits.",
    ),
)
"""Work on every screen that shows the fleet."""

MOVE: tuple[Command, ...] = (
    Command("move.down", ("j", "down"), "down", "Next line.", "move(1)"),
    Command("move.up", ("k", "up"), "up", "Line before.", "move(-1)"),
    Command("move.top", ("g", "home"), "top", "First line.", "move_top"),
    Command("move.bottom", ("G", "end"), "bottom", "Last line; in a log, follow it again.", "move_bottom"),
    Command("move.page-down", ("pagedown", "ctrl+d"), "page down", "One page further.", "page(1)"),
    Command("move.page-up", ("pageup", "ctrl+u"), "page up", "One page back.", "page(-1)"),
)
"""Work where there are lines to move through. ctrl+d moves; it never deletes."""

BOX_TARGET: tuple[Command, ...] = (
    Command("box.log", ("l",), "log", "The followed log on the whole screen.", "open_log", footer=2),
    Command("box.curves", ("c",), "curves", "The loss curves of the box's runs.", "open_curves", footer=3),
    Command(
        "box.phases",
        ("p",),
        "phases",
        "The six phases of the box's life and their checks.",
        "open_phases",
        footer=4,
    ),
    Command(
        "box.teardown",
        ("D",),
        "tear down",
        "Review what stopping the meter takes; nothing is sent before you type the name.",
        "open_teardown",
        footer=5,
        dangerous=True,
    ),
)
"""Work on a box: the selected one on the fleet screen, the shown one elsewhere."""

FLEET: tuple[Command, ...] = (
    Command("fleet.open", ("enter",), "open", "Open the selected box.", footer=1),
    Command(
        "fleet.filter", ("slash",), "filter", "Show only boxes whose name, platform or state match.", footer=6
    ),
    Command(
        "fleet.sort", ("o",), "sort", "Sort by the next order: trouble, name, age, spent, file.", footer=7
    ),
    Command(
        "fleet.next-pane",
        ("tab",),
        "next pane",
        "Give the keys to the pane below, to read what does not fit; at the end back to the boxes.",
        "next_pane(1)",
    ),
    Command(
        "fleet.previous-pane",
        ("shift+tab",),
        "pane before",
        "Give the pane before the keys.",
        "next_pane(-1)",
    ),
    Command(
        "fleet.answer", ("A",), "answer", "Answer what a box asks: a first host key, a password.", "answer"
    ),
)

BOX_CARE: tuple[Command, ...] = (
    Command(
        "box.alerts", ("a",), "alerts", "What holds now, since when, and what to do; mute from there.",
        "open_alerts", footer=9,
    ),
    Command(
        "box.connect", ("r",), "connect now",
        "Connect to the box without waiting; start the fleet again if it failed to start.", "connect",
    ),
    Command(
        "box.pause", ("P",), "pause", "Disconnect from the box and leave it alone, or connect again.", "pause"
    ),
    Command(
        "box.interval", ("i",), "interval", "Sample the box every 1, 2, 5, 15 or 60 seconds.", "interval"
    ),
)  # fmt: skip
"""How rgt treats a box; nothing of it touches what runs there."""

REPLAY: tuple[Command, ...] = (
    Command(
        "replay.hold", ("space",), "hold", "In a replay: let its time stand still, or go on.", "hold_replay"
    ),
    Command(
        "replay.faster", ("plus", "equals_sign"), "faster", "In a replay: twice as fast.", "pace_replay(2)"
    ),
    Command("replay.slower", ("minus",), "slower", "In a replay: half as fast.", "pace_replay(0.5)"),
)
"""Work on a recording; a running fleet's time is nobody's to hold."""

ALERTS: tuple[Command, ...] = (
    Command("alerts.open", ("enter",), "open", "Open the box of the selected alert.", footer=1),
    Command("alerts.mute", ("m",), "mute 1 h", "Be quiet about the selected alert for an hour.",
            "mute(3600)", footer=2),
    Command("alerts.mute-long", ("M",), "mute", "Be quiet about it until it is over.", "mute(-1)", footer=3),
    Command("alerts.unmute", ("u",), "unmute", "Speak about it again.", "mute(0)", footer=4),
)  # fmt: skip
"""Work on the selected alert."""

LOG_LINES: tuple[Command, ...] = (
    Command("log.next-error", ("e",), "next error", "Next line with an error.", "next_error(1)", footer=6),
    Command("log.previous-error", ("E",), "previous error", "Line with an error before.", "next_error(-1)"),
    Command("log.follow", ("F", "f"), "follow", "Follow the newest line again.", "follow", footer=7),
)
"""Work where a log is shown."""

BOX: tuple[Command, ...] = (
    Command("box.next-pane", ("tab",), "next pane", "Give the next pane the keys.", "next_pane(1)"),
    Command(
        "box.previous-pane", ("shift+tab",), "pane before", "Give the pane before the keys.", "next_pane(-1)"
    ),
    Command(
        "box.next-log", ("right_square_bracket",), "next log", "Show the next log of the box.", "next_log(1)"
    ),
    Command(
        "box.previous-log", ("left_square_bracket",), "log before", "Show the log before.", "next_log(-1)"
    ),
)

LOG: tuple[Command, ...] = (
    Command("log.search", ("slash",), "search", "Search the log; empty text ends the search.", footer=2),
    Command("log.next-match", ("n",), "next match", "Next line that matches.", "next_match(1)", footer=3),
    Command("log.previous-match", ("N",), "match before", "Matching line before.", "next_match(-1)"),
    Command("log.wrap", ("w",), "wrap", "Wrap long lines, or cut them.", "toggle_wrap"),
    Command("log.left", ("left",), "left", "Scroll cut lines to the left.", "sideways(-1)"),
    Command("log.right", ("right",), "right", "Scroll cut lines to the right.", "sideways(1)"),
    Command(
        "box.next-log", ("right_square_bracket",), "next log", "Show the next log of the box.", "next_log(1)"
    ),
    Command(
        "box.previous-log", ("left_square_bracket",), "log before", "Show the log before.", "next_log(-1)"
    ),
)

HELP: tuple[Command, ...] = ()
