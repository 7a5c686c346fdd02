"""One declaration per command, used by key bindings, key line, palette, help and docs.

A screen lists its commands in `KEYS`; keys are listed nowhere else. ``python -m
rgt_tui.ui.commands`` prints ``docs/screens/keys.md``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace
from textual.binding import Binding, BindingType
from textual.keys import _character_to_key as character_key

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct

_KEYS: dict[str, tuple[str, ...]] = {}
"""The declared keys of every command, by its id."""
_CHOSEN: dict[str, tuple[str, ...]] = {}
"""The keys that the person has chosen, by the id of their command."""


def choose_keys(keys: Mapping[str, tuple[str, ...]]) -> None:
    """Set the keys that the person has chosen, by command id, so that all texts name them."""
    _CHOSEN.clear()
    _CHOSEN.update(keys)


def keys_for(command: str) -> tuple[str, ...]:
    """Return Textual's names of a command's keys, as the person has chosen them."""
    return _CHOSEN.get(command) or _KEYS[command]


def chosen_keys() -> tuple[str, ...]:
    """Return Textual's names of all keys that the person has chosen."""
    return tuple(key for keys in _CHOSEN.values() for key in keys)


def key_for(command: str) -> str:
    """Return the first key of a command as shown to a person.

    Every text that names a key must call this, because the person may have changed it.

    Args:
        command: Its id.

    Raises:
        KeyError: There is no such command, or its screen was not imported yet.
    """
    return key_name(keys_for(command)[0])


class Command(FrozenStruct):
    """One thing a person can do."""

    id: str
    """Stable id, ``place.name``; the key map overrides keys by it."""
    keys: tuple[str, ...]
    """Textual's names of the keys; the first one is shown."""
    title: str
    """At most a few words; shown in the key line."""
    help: str
    """One sentence for the help page and the palette."""
    action: str = ""
    """Textual action; by default the name in `id` with underscores."""
    footer: int = 0
    """Rank in the key line, 1 = most important; 0 = not shown there."""
    dangerous: bool = False
    """Whether it leads to something that cannot be undone. Never bound to a bare lowercase
    letter."""
    priority: bool = False
    """Whether it works regardless of the focus."""
    needs: tuple[str, ...] = ()
    """Requirements: ``box`` (a selected one), ``live`` (not a recording), ``replay``,
    ``question``."""

    def __post_init__(self) -> None:
        # `setdefault`: copies made with `replace` may have the person's keys; this keeps the
        # declared ones.
        _KEYS.setdefault(self.id, self.keys)

    @property
    def textual_action(self) -> str:
        """The Textual action."""
        return self.action or self.id.rpartition(".")[2].replace("-", "_")

    @property
    def shown_title(self) -> str:
        """The title in the person's language."""
        return translate(self.title)

    @property
    def shown_help(self) -> str:
        """The sentence for the help in the person's language."""
        return translate(self.help)

    @property
    def shown_key(self) -> str:
        """The first key as shown to a person."""
        return key_name(self.keys[0])

    @property
    def shown_keys(self) -> str:
        """All keys as shown to a person."""
        return "  ".join(key_name(key) for key in self.keys)


# Textual uses the Unicode names of characters; people look for the character on the key.
_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "ampersand": "&",
    "asterisk": "*",
    "exclamation_mark": "!",
    "apostrophe": "'",
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
    """Return a key as shown to a person: ``?`` for ``question_mark``."""
    # "+" alone is a key; in a longer name it separates the modifiers.
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    return "+".join([*modifiers, _NAMES.get(last, last)])


def key_of(shown: str) -> str:
    """Return Textual's name of a key as a person writes it: ``question_mark`` for ``?``."""
    *modifiers, last = shown.split("+") if len(shown) > 1 else [shown]
    names = {name: key for key, name in _NAMES.items()}
    named = names.get(last) or (
        # Textual spells out punctuation marks only; letters, digits and named keys are as written.
        character_key(last) if len(last) == 1 and not last.isalnum() else last
    )
    return "+".join([*modifiers, named])


def build_bindings(commands: Iterable[Command]) -> list[BindingType]:
    """Return the Textual bindings of some commands."""
    return [
        Binding(
            ",".join(command.keys),
            command.textual_action,
            command.shown_title,
            show=bool(command.footer),
            key_display=command.shown_key,
            priority=command.priority,
            tooltip=command.shown_help,
            id=command.id,
        )
        for command in commands
    ]


APP: tuple[Command, ...] = (
    Command("app.help", ("question_mark", "f1"), "help",
            "Every key of this screen, and what it does.", "app.help", footer=20),
    Command("app.palette", ("ctrl+p", "colon"), "find",
            "Find a box, a run, a screen or a command by name.", "app.command_palette"),
    Command("app.screenshot", ("ctrl+s",), "screenshot",
            "Save the screen as an SVG file: here, else in rgt's state directory.",
            "app.screenshot"),
    Command("app.theme", ("ctrl+t",), "next theme", "Switch to the next theme.", "app.next_theme"),
    Command("app.quit", ("ctrl+q",), "quit",
            "Quit rgt. Whatever runs on the boxes keeps running.", "app.quit", priority=True),
)  # fmt: skip
"""For every screen."""

SCREEN: tuple[Command, ...] = (
    Command("screen.back", ("q",), "back", "Go back to the previous screen."),
    Command("screen.copy", ("y",), "copy",
            "Copy what is selected: to the clipboard, and to a file.",
            footer=19),
    Command("screen.escape", ("escape",), "clear",
            "Clear the filter or search, then go back; on the fleet screen, dismiss the event "
            "line. Never quits."),
    Command("past.journal", ("J",), "journal",
            "What happened, across restarts, with the report of the night: of all boxes, or of "
            "this one.",
            "open_past('journal')"),
    Command("past.machine", ("T",), "time machine",
            "Go to any recorded minute: fleet, boxes, curves, logs and money; in a replay, of the "
            "recording.",
            "open_past('time machine')"),
    Command("past.changed", ("apostrophe",), "what changed",
            "Mark this moment of the box; a second time: what differs between the two, likeliest "
            "cause first.",
            "mark_moment"),
)  # fmt: skip
"""For every screen that shows the fleet."""

MOVE: tuple[Command, ...] = (
    Command("move.down", ("j", "down"), "down", "Next line.", "move(1)"),
    Command("move.up", ("k", "up"), "up", "Previous line.", "move(-1)"),
    Command("move.top", ("g", "home"), "top", "First line.", "move_top"),
    Command("move.bottom", ("G", "end"), "bottom", "Last line; in a log, resume following.",
            "move_bottom"),
    Command("move.page-down", ("pagedown", "ctrl+d"), "page down", "One page down.", "page(1)"),
    Command("move.page-up", ("pageup", "ctrl+u"), "page up", "One page up.", "page(-1)"),
)  # fmt: skip
"""For lines to move through. ctrl+d moves; it never deletes."""

BOX_TARGET: tuple[Command, ...] = (
    Command("box.log", ("l",), "log", "The log, full screen.", "open_for_box('log')", footer=2,
            needs=("box",)),
    Command("box.curves", ("c",), "curves", "The loss curves of the box's runs.",
            "open_for_box('curves')", footer=3,
            needs=("box",)),
    Command("box.phases", ("p",), "phases",
            "The six phases of the box's life and their checks.", "open_for_box('phases')",
            footer=4,
            needs=("box",)),
    Command("box.teardown", ("D",), "tear down",
            "Review stopping or destroying the box; nothing is sent until you type the name.",
            "open_for_box('teardown')", footer=5, dangerous=True,
            needs=("box", "live")),
    Command("box.platform", ("i",), "platform",
            "The box's platform: what survives, what is billed, every deadline.",
            "open_for_box('platform')",
            needs=("box",)),
)  # fmt: skip
"""For a box: the selected one on the fleet screen, the shown one elsewhere."""

BOX_SHELL: tuple[Command, ...] = (
    Command("box.shell", ("s",), "shell",
            "Open a shell on the box; rgt comes back when it ends. Inside tmux: in a new window.",
            "shell(False)",
            needs=("box", "live")),
    Command("box.shell-there", ("S",), "shell there",
            "Open a shell in the directory of the box's run; in a log, the log at this line in its "
            "pager.",
            "shell(True)", needs=("box", "live")),
)  # fmt: skip
"""For a box to which rgt is connected."""

BOX_WORK: tuple[Command, ...] = (
    Command("box.work", ("w",), "work",
            "Pull, push, run or queue on the box: the command's dry run first.", "work",
            needs=("box", "live")),
)  # fmt: skip
"""For a box on which work is to start."""

BOX_FIX: tuple[Command, ...] = (
    Command("box.fix", ("exclamation_mark",), "try the fix",
            "Run the steps of a fix that only look, and preview what it would remove; nothing is "
            "removed until you type its name.", "try_fix", footer=11, dangerous=True,
            needs=("box", "live")),
)  # fmt: skip
"""For a box with a finding, or the page of one."""

FLEET: tuple[Command, ...] = (
    Command("fleet.open", ("enter",), "open", "Open the selected box.", footer=1, needs=("box",)),
    Command("fleet.filter", ("slash",), "filter",
            "Show only some boxes: state:running gpu<50 platform:autodl cost>1 age>5m text.",
            footer=6),
    Command("fleet.kept-filter", ("F",), "kept filters",
            "The next kept filter; save:NAME in a filter keeps it."),
    Command("fleet.sort", ("o",), "sort",
            "Sort by a column: a letter picks it, o takes the next one.", footer=7),
    Command("fleet.trouble-first", ("t",), "trouble first",
            "Sort by trouble again, the worst box on top."),
    Command("fleet.turn-order", ("O",), "reverse", "Reverse the sort order."),
    Command("fleet.group", ("b",), "group", "Group by platform, state or account, or not at all."),
    Command("fleet.forward", ("f",), "forward a port",
            "Forward a port of the box to this machine until rgt quits, for TensorBoard or a "
            "notebook.", "forward",
            needs=("box", "live")),
    Command("fleet.editor", ("E",), "editor",
            "What VS Code, Cursor and JetBrains need to open the box.", "editor",
            needs=("box", "live")),
    Command("fleet.mark", ("space",), "mark",
            "Mark the box or unmark it; in a replay, pause or resume."),
    Command("fleet.mark-range", ("v",), "mark range",
            "Begin a range of marks here; again: mark up to here.",
            needs=("live",)),
    Command("fleet.mark-all", ("asterisk",), "mark all", "Mark all shown boxes, or unmark them.",
            needs=("live",)),
    Command("fleet.with-marked", ("m",), "with marked",
            "Pull, mute, connect, disconnect or stop all marked boxes.", footer=8, needs=("live",)),
    Command("fleet.next-pane", ("tab",), "next pane",
            "Focus the next pane to scroll it; after the last one, the boxes again.",
            "next_pane(1)"),
    Command("fleet.previous-pane", ("shift+tab",), "previous pane", "Focus the previous pane.",
            "next_pane(-1)"),
    Command("fleet.transfers", ("x",), "transfers",
            "Pulls and pushes of every rgt: progress, speed and result.", "open_all('transfers')"),
    Command("fleet.night", ("N",), "night ahead",
            "What each box will do until tomorrow noon, what it costs by seven, and what is worth "
            "doing now.",
            "open_all('night')"),
    Command("fleet.audit", ("u",), "audit",
            "Who did what to which box, and whether the log is complete.",
            "open_all('audit')"),
    Command("fleet.answer", ("A",), "answer",
            "Answer a question from a box: a new host key, a password.", "answer",
            needs=("question",)),
)  # fmt: skip

PLATFORM: tuple[Command, ...] = (
    Command("platform.next-pane", ("tab",), "next column", "Focus the other column.",
            "next_pane(1)"),
    Command("platform.previous-pane", ("shift+tab",), "previous column",
            "Focus the other column.", "next_pane(-1)"),
)  # fmt: skip
"""For the page of a platform."""

FIRST: tuple[Command, ...] = (
    Command("first.read", ("enter",), "read", "Mark it as read; it does not open again.", "read",
            footer=1),
    Command("first.whole", ("i",), "whole page", "Show everything known about the platform.",
            "whole", footer=2),
)  # fmt: skip
"""For the page shown on the first contact with a platform."""

HANDBOOK: tuple[Command, ...] = (
    Command("handbook.search", ("slash",), "search", "Search by id, words, or a line of a log.",
            footer=1),
    Command("handbook.next-pane", ("tab",), "list or page", "Focus the page, and back.", footer=2),
)  # fmt: skip
"""For the pages of known failures."""

BOX_CARE: tuple[Command, ...] = (
    Command("box.alerts", ("a",), "alerts",
            "Active alerts: since when, and what to do; mute them there.",
            "open_for_box('alerts')", footer=9),
    Command("box.handbook", ("H",), "handbook",
            "Known failures, those of this box first: the proof, the cause, the fix.",
            "open_for_box('handbook')"),
    Command("box.connect", ("r",), "connect now",
            "Connect to the box now; restart the fleet if it failed to start.", "connect",
            needs=("live",)),
    Command("box.pause", ("P",), "pause", "Disconnect from the box, or reconnect.", "pause",
            needs=("box", "live")),
    Command("box.interval", ("I",), "interval", "Sample the box every 1, 2, 5, 15 or 60 seconds.",
            "interval",
            needs=("box", "live")),
)  # fmt: skip
"""How rgt treats a box; nothing here affects what runs on it."""

REPLAY: tuple[Command, ...] = (
    Command("replay.hold", ("space",), "pause replay", "In a replay: pause or resume.",
            "hold_replay",
            needs=("replay",)),
    Command("replay.faster", ("plus", "equals_sign"), "faster", "In a replay: double the speed.",
            "pace_replay(2)",
            needs=("replay",)),
    Command("replay.slower", ("minus",), "slower", "In a replay: halve the speed.",
            "pace_replay(0.5)",
            needs=("replay",)),
    Command("replay.earlier", ("comma",), "minute back", "In a replay: go back a minute.",
            "seek_replay(-60)",
            needs=("replay",)),
    Command("replay.later", ("full_stop",), "minute on", "In a replay: go forward a minute.",
            "seek_replay(60)",
            needs=("replay",)),
)  # fmt: skip
"""For a recording; a live fleet cannot be paused."""

ALERTS_TOO: tuple[Command, ...] = tuple(
    replace(command, footer=0) for command in BOX_CARE if command.id == "box.alerts"
)
"""``a`` opens the alerts on every screen that has it, also without the other keys of a box."""

OF_ROW: tuple[Command, ...] = tuple(
    replace(command, footer=0)
    # No rank: the key line of these screens is for their own commands.
    for command in (*BOX_TARGET, *BOX_CARE)
    if command.id in {"box.log", "box.curves", "box.platform", "box.handbook"}
)
"""Commands that open screens for the box of a selected line."""

ALERTS: tuple[Command, ...] = (
    Command("alerts.open", ("enter",), "open", "Open the box of the selected alert.", footer=1),
    Command("alerts.mute", ("m",), "mute 1 h", "Mute the selected alert for an hour.", "mute(3600)",
            footer=2,
            needs=("live",)),
    Command("alerts.mute-long", ("M",), "mute", "Mute it until it clears.", "mute(-1)", footer=3,
            needs=("live",)),
    Command("alerts.mute-until", ("U",), "mute until", "Mute it until a time, such as 07:00.",
            "mute_until", footer=4,
            needs=("live",)),
    Command("alerts.unmute", ("u",), "unmute", "Unmute it.", "mute(0)", footer=5, needs=("live",)),
    Command("alerts.ended", ("h",), "ended", "Show or hide the alerts that have ended.",
            "toggle_ended", footer=6),
    *OF_ROW,
)  # fmt: skip
"""For the selected alert, and screens about its box."""

JOURNAL: tuple[Command, ...] = (
    Command("journal.log", ("enter",), "log at that time",
            "Open the box's log at that moment; for a stop or destroy, its receipt.",
            "log_then", footer=1),
    Command("journal.errors", ("f",), "errors only", "Show only errors, or everything again.",
            "errors_only", footer=2),
    Command("journal.find", ("slash",), "find",
            "Show only events whose text or box contains these words.",
            "find", footer=3),
    Command("journal.mute", ("m",), "mute 1 h",
            "Mute the selected event's alert for an hour, if it is still active.", "mute",
            footer=4),
    *OF_ROW,
    *ALERTS_TOO,
)  # fmt: skip
"""For the selected event of the journal."""

MACHINE: tuple[Command, ...] = (
    Command("past.earlier-event", ("left",), "event back", "Go to the previous event.", "event(-1)",
            footer=1),
    Command("past.later-event", ("right",), "event on", "Go to the next event.", "event(1)",
            footer=2),
    Command("past.earlier", ("comma",), "minute back", "Go back a minute.", "minute(-1)", footer=3),
    Command("past.later", ("full_stop",), "minute on", "Go forward a minute.", "minute(1)",
            footer=4),
    Command("past.go", ("slash",), "go to", "Go to a time: 02:30, yesterday 14:00, 3h (ago).",
            "go_to", footer=5),
    # These keys act on live boxes elsewhere; here they say why they do nothing.
    Command("past.refused", ("D", "r", "P", "I", "A", "m"), "read only",
            "The past is read-only: tear down, connect, pause, mute and answer in the present.",
            "refuse"),
)  # fmt: skip
"""For the time machine."""

_IN_THE_PAST = frozenset(
    (
        "fleet.open", "fleet.sort", "fleet.trouble-first", "fleet.turn-order", "fleet.group",
        "fleet.next-pane",
        "fleet.previous-pane",
        "box.log", "box.curves", "box.phases",
        "box.platform", "box.alerts", "box.handbook",
    )
)  # fmt: skip
LOOKING: tuple[Command, ...] = tuple(
    # After the five commands of the time machine itself.
    replace(command, footer=command.footer + 5 if command.footer else 0)
    for command in (*FLEET, *BOX_TARGET, *BOX_CARE)
    if command.id in _IN_THE_PAST
)
"""Commands of the fleet screen that change nothing, so they also work in the past."""

NIGHT: tuple[Command, ...] = (
    Command("night.first", ("1",), "do 1",
            "Open the first proposed command: its dry run, then confirm it.",
            "follow_advice(1)", footer=1, needs=("live",)),
    Command("night.second", ("2",), "do 2", "Open the second one.", "follow_advice(2)", footer=2,
            needs=("live",)),
    Command("night.third", ("3",), "do 3", "Open the third one.", "follow_advice(3)", footer=3,
            needs=("live",)),
    Command("night.scroll-down", ("down", "j", "pagedown"), "down", "See the rest.", "scroll(1)",
            footer=4),
    Command("night.scroll-up", ("up", "k", "pageup"), "up", "See the start.", "scroll(-1)"),
    *ALERTS_TOO,
)  # fmt: skip
"""For the night ahead."""

TRANSFERS: tuple[Command, ...] = (
    Command("transfers.open", ("enter",), "open", "Open the box of the selected transfer.",
            footer=1),
    Command("transfers.stop", ("s",), "stop", "Stop the selected pull; arrived files are kept.",
            "stop_pull", footer=2,
            needs=("live",)),
    Command("transfers.again", ("r",), "pull again",
            "Pull the same again; files that are complete here are skipped.", "again", footer=3,
            needs=("live",)),
    Command("transfers.agree", ("Y",), "agree",
            "Accept the traffic cost of the selected pull.", footer=4, needs=("live",)),
    *OF_ROW,
    *ALERTS_TOO,
)  # fmt: skip
"""For the selected transfer."""

AUDIT: tuple[Command, ...] = (
    Command(
        "audit.details",
        ("enter",),
        "details",
        "Show or hide the full text of the selected line.",
        footer=1,
    ),
    *ALERTS_TOO,
)
"""For the selected entry of the audit log."""

LOG_LINES: tuple[Command, ...] = (
    Command("log.next-error", ("e",), "next error", "Next line with an error.", "next_error(1)",
            footer=6),
    Command("log.previous-error", ("E",), "previous error", "Previous line with an error.",
            "next_error(-1)"),
    Command("log.follow", ("F", "f"), "follow", "Resume following the newest line.", "follow",
            footer=7),
)  # fmt: skip
"""For screens with a log."""

BOX: tuple[Command, ...] = (
    Command("box.next-pane", ("tab",), "next pane", "Focus the next pane.", "next_pane(1)"),
    Command("box.previous-pane", ("shift+tab",), "previous pane", "Focus the previous pane.",
            "next_pane(-1)"),
    Command("box.next-log", ("right_square_bracket",), "next log", "Show the next log of the box.",
            "next_log(1)"),
    Command("box.previous-log", ("left_square_bracket",), "previous log",
            "Show the previous log of the box.", "next_log(-1)"),
    Command("box.history", ("h",), "past",
            "The last 10 minutes, hour, or day of the box's figures.", "history",
            footer=8),
)  # fmt: skip

LOG: tuple[Command, ...] = (
    Command("log.search", ("slash",), "search",
            "Search the log: text or a regular expression, upper and lower case alike unless you "
            "type a capital; an empty search clears it.", footer=2),
    Command("log.next-match", ("n",), "next match",
            "Next matching line; after the last, the first.",
            "next_match(1)", footer=3),
    Command("log.previous-match", ("N",), "previous match",
            "Previous matching line; before the first, the last.",
            "next_match(-1)"),
    Command("log.filter", ("ampersand",), "only",
            "Show only matching lines; type errors to see errors alone.",
            "filter", footer=8),
    Command("log.page", ("enter",), "page",
            "Open the handbook page for the selected line; for a line found on the box, show the "
            "lines around it.",
            "open_page", footer=1),
    Command("log.find", ("b",), "find on box",
            "Search the whole log on the box; only matches are sent.", "find"),
    Command("log.times", ("t",), "times",
            "Show before each line: nothing, its time, or its age.", footer=9),
    Command("log.select", ("v",), "select",
            "Start or stop selecting several lines; copying takes all of them."),
    Command("log.select-down", ("shift+down",), "select down",
            "Extend the selection one line down.", "select_more(1)"),
    Command("log.select-up", ("shift+up",), "select up", "Extend the selection one line up.",
            "select_more(-1)"),
    Command("log.merge", ("plus",), "merge",
            "Merge the box's next log into this one, by time; after the last, "
            "this one alone.", "merge"),
    Command("log.wrap", ("w",), "wrap", "Wrap or truncate long lines.", "toggle_wrap"),
    Command("log.left", ("left",), "left", "Scroll truncated lines left.", "sideways(-1)"),
    Command("log.right", ("right",), "right", "Scroll truncated lines right.", "sideways(1)"),
    Command("box.next-log", ("right_square_bracket",), "next log", "Show the next log of the box.",
            "next_log(1)"),
    Command("box.previous-log", ("left_square_bracket",), "previous log",
            "Show the previous log of the box.", "next_log(-1)"),
)  # fmt: skip

LOG_TARGET: tuple[Command, ...] = tuple(
    command
    for command in (*BOX_TARGET, *BOX_SHELL, *BOX_CARE)
    if command.id not in {"box.log", "box.connect", "box.pause", "box.interval"}
)
"""Commands of a box that also work in its log."""

CURVES: tuple[Command, ...] = (
    Command("curves.metric", ("m",), "metric",
            "Show the next metric: loss, val_loss, lr, then any others.", "next_metric", footer=1),
    Command("curves.axis", ("x",), "x axis",
            "Choose the x axis: steps, epochs, time since the start, time of day, tokens, if the "
            "runs log them.",
            "next_axis", footer=2),
    Command("curves.log", ("L",), "log y", "Switch the y axis between logarithmic and linear.",
            "toggle_log", footer=3),
    Command("curves.smooth", ("s",), "smooth",
            "Smooth with an exponential moving average: 0, 0.6, 0.9, 0.97.", "smoother", footer=4),
    Command("curves.zoom-in", ("plus", "equals_sign"), "zoom",
            "Zoom in around the crosshair.", "zoom(0.5)"),
    Command("curves.zoom-out", ("minus",), "zoom out", "Zoom out.", "zoom(2.0)"),
    Command("curves.pan-left", ("left",), "earlier", "Move the window to earlier steps.",
            "pan(-0.25)"),
    Command("curves.pan-right", ("right",), "later",
            "Move the window to later steps; at the end it follows the newest.", "pan(0.25)"),
    Command("curves.reset", ("0",), "all", "Show all steps and follow the newest.", "reset_view"),
    Command("curves.cross-left", ("left_square_bracket",), "crosshair",
            "Read the values at an earlier step.", "cross(-1)", footer=5),
    Command("curves.cross-right", ("right_square_bracket",), "crosshair later",
            "Read the values at a later step.", "cross(1)"),
    Command("curves.log-there", ("enter",), "log there",
            "Open the log at the step of the crosshair.", "open_log"),
    Command("curves.next-run", ("j", "down"), "next run",
            "Select the next run; it is drawn on top.", "select_run(1)"),
    Command("curves.previous-run", ("k", "up"), "previous run", "Select the previous run.",
            "select_run(-1)"),
    Command("curves.hide", ("space",), "hide", "Hide the selected run, or show it again.",
            "hide_run"),
    Command("curves.only", ("v",), "only this", "Show only the selected run, or all of them.",
            "only_run"),
    Command("curves.reference", ("R",), "pin",
            "Pin the selected run: the others show how their start options differ.",
            "pin_reference"),
    Command("curves.first-difference", ("d",), "first difference",
            "Go to the first step where the pinned and the selected run differ by more than their "
            "noise, and say what was not the same.", "first_difference"),
    Command("curves.grid", ("g",), "grid",
            "Show all metrics at once, small; enter opens one.", "toggle_grid", footer=6),
    Command("curves.export", ("X",), "export",
            "Export the shown curves to a file: .svg or .png for a picture, .csv for the points.",
            "export"),
    Command("curves.evaluations", ("V",), "evaluations",
            "Show or hide the evaluations of the loss as points.", "toggle_evaluations"),
    Command("curves.seeds", ("S",), "over seeds",
            "Show IQM, mean and 95% band of the shown runs instead of the runs, or the runs again.",
            "toggle_seeds"),
    Command("curves.boxes", ("B",), "boxes", "Show the runs of all boxes, or of this one.",
            "all_boxes"),
    Command("curves.choose-boxes", ("b",), "choose boxes",
            "Show the runs of the boxes that you name: names with * and ?, with spaces between.",
            "choose_boxes"),
    *(replace(command, footer={"box.phases": 7, "box.teardown": 8}.get(command.id, 0))
      for command in BOX_TARGET if command.id != "box.curves"),
    *ALERTS_TOO,
)  # fmt: skip
"""Keys of the curves, and those of the box."""

SCREENS: dict[str, tuple[str, str, str]] = {
    "fleet": ("Fleet", "rgt_tui.ui.screens.fleet", "FleetScreen"),
    "box": ("Box", "rgt_tui.ui.screens.box", "BoxScreen"),
    "log": ("Log", "rgt_tui.ui.screens.log", "LogScreen"),
    "curves": ("Curves", "rgt_tui.ui.screens.curves", "CurvesScreen"),
    "phases": ("Phases", "rgt_tui.ui.screens.lifecycle", "LifecycleScreen"),
    "alerts": ("Alerts", "rgt_tui.ui.screens.alerts", "AlertsScreen"),
    "time machine": ("Time machine", "rgt_tui.ui.screens.time_machine", "TimeMachineScreen"),
    "night": ("Night ahead", "rgt_tui.ui.screens.night", "NightScreen"),
    "journal": ("Journal", "rgt_tui.ui.screens.event_journal", "JournalScreen"),
    "teardown": ("Tear down", "rgt_tui.ui.screens.teardown", "TeardownScreen"),
    "transfers": ("Transfers", "rgt_tui.ui.screens.transfers", "TransfersScreen"),
    "audit": ("Audit", "rgt_tui.ui.screens.audit_log", "AuditScreen"),
    "platform": ("Platform", "rgt_tui.ui.screens.platform", "PlatformScreen"),
    "handbook": ("Handbook", "rgt_tui.ui.screens.handbook_pages", "HandbookScreen"),
    "welcome": ("Welcome", "rgt_tui.ui.screens.welcome", "WelcomeScreen"),
    "first contact": ("First contact", "rgt_tui.ui.screens.platform", "FirstContactScreen"),
}
"""Title, module and class of each screen; all but the fleet's take ``(fleet, box_name)``."""

OF_ALL_BOXES = frozenset({"alerts", "night", "handbook", "journal", "transfers", "audit"})
"""Screens that can open without a box."""


def screen_class(place: str) -> Any:
    """Import the class of a screen."""
    _, module, name = SCREENS[place]
    # By name: importing all screens would delay the first frame.
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
        (
            "This page is generated from the commands themselves (`python -m "
            "rgt_tui.ui.commands`). Every command"
        ),
        (
            "is also in the command palette (`ctrl+p` or `:`), and what the key line shows can be "
            "clicked."
        ),
    ]
    for title, commands in commands_by_screen():
        out += ["", f"## {title}", "", "| key | command | what it does | id |", "|---|---|---|---|"]
        for command in commands:
            keys = " ".join(f"`{key}`" for key in command.shown_keys.split("  "))
            if command.dangerous:
                name = f"**{command.title}**"
            else:
                name = command.title
            out.append(f"| {keys} | {name} | {command.help} | `{command.id}` |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(keys_page(), end="")
