"""The default key map as data: every command by its id, and the generated page ``docs/screens/keys.md``."""

from __future__ import annotations

import importlib

from rgt_tui.ui.commands import APP, SCREEN, Command

SCREENS: tuple[tuple[str, str, str], ...] = (
    ("Fleet", "rgt_tui.ui.screens.fleet", "FleetScreen"),
    ("Box", "rgt_tui.ui.screens.box", "BoxScreen"),
    ("Log", "rgt_tui.ui.screens.log", "LogScreen"),
    ("Curves", "rgt_tui.ui.screens.curves", "CurvesScreen"),
    ("Phases", "rgt_tui.ui.screens.lifecycle", "LifecycleScreen"),
    ("Alerts", "rgt_tui.ui.screens.alerts", "AlertsScreen"),
    ("Tear down", "rgt_tui.ui.screens.teardown", "TeardownScreen"),
)


def commands_by_screen() -> list[tuple[str, tuple[Command, ...]]]:
    """Return the commands of every screen that exists, those of all screens first."""
    found: list[tuple[str, tuple[Command, ...]]] = [("Every screen", (*SCREEN, *APP))]
    for title, module, name in SCREENS:
        try:
            keys = getattr(importlib.import_module(module), name).KEYS
        except ModuleNotFoundError:
            continue
        found.append((title, tuple(keys)))
    return found


def every_command() -> dict[str, Command]:
    """Return all commands by id."""
    return {command.id: command for _, commands in commands_by_screen() for command in commands}


def keys_page() -> str:
    """Return the Markdown page of all keys."""
    out = [
        "# Keys",
        "",
        "This page is generated from the commands themselves (`python -m rgt_tui.ui.keymap`). Every command",
        "is also in the command palette (`ctrl+p` or `:`), and what the key line shows can be clicked. Keys",
        "can be changed by the id of a command.",
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
