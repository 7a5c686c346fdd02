"""The settings that a run was started with, as far as known, and how they differ from another run's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from rgt_tui.model import BoxState, RunState, training_of
from rgt_tui.ui.notation import NONE, glyphs

FIRST = ("lr", "batch", "seed")
"""What is said first of what differs."""
LAST = ("config",)
"""What is said last: the name of a file tells less than what stands in it."""
MOST_SAID = 3
LONGEST = 24
"""Characters of a value."""
_SHORT = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "per_device_train_batch_size": "batch",
    "train_batch_size": "batch",
    "micro_batch_size": "batch",
    "random_seed": "seed",
    "cfg": "config",
    "config_file": "config",
    "config_path": "config",
}
_OPTION = re.compile(r"^--?([A-Za-z][\w.\-]*)(?:=(.*))?$", re.DOTALL)
_PAIR = re.compile(r"^\+{0,2}([A-Za-z][\w.]*)=(.*)$", re.DOTALL)
"""As Hydra takes it."""


def settings_of(box: BoxState | None, run: RunState) -> dict[str, str]:
    """Return what is known of how a run was started: its cell, its config, its command, its highest learning rate."""
    known: dict[str, str] = {}
    lr = run.series.get("lr")
    highest = (
        max((y for _, y in lr if y == y), default=None) if lr is not None and len(lr) <= MOST_LOOKED else None
    )
    if highest is not None:
        known["peak lr"] = f"{highest:.3g}"
    if box is None:
        return known
    name = training_of(run.name, {found.name for found in box.found})
    found = next((each for each in box.found if each.name == name), None)
    if found is not None:
        known |= options_of(found.command)
    cell = next((cell for queue in box.queues for cell in queue.cells if cell.name == run.name), None)
    if cell is not None:
        known |= {**(cell.told or {}), "config": cell.cfg, "task": cell.task}
        if cell.epochs is not None:
            known["epochs"] = str(cell.epochs)
    if "lr" in known:
        known.pop("peak lr", None)
    return known


MOST_LOOKED = 20_000
"""Points of a learning rate that are looked through for its highest."""


def options_of(command: str) -> dict[str, str]:
    """Return the options of a command line, by their usual short names; one without a value is ``on``."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if (pair := _PAIR.match(word)) is not None:
            found[_key(pair[1])] = pair[2]
        elif (option := _OPTION.match(word)) is not None and word != "-m":
            after = words[place + 1] if place + 1 < len(words) else "-"
            bare = "on" if _OPTION.match(after) or _PAIR.match(after) or after == "-" else after
            found[_key(option[1])] = bare if option[2] is None else option[2]
    return found


def _key(name: str) -> str:
    plain = name.rpartition(".")[2].replace("-", "_").lower()
    return _SHORT.get(plain, plain)


def differences(reference: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """Say what differs, e.g. ``lr 3e-4 → 1e-3``; what one of them does not tell is a dash, and last."""
    keys = [key for key in {**reference, **other} if not _same(reference.get(key), other.get(key))]
    keys.sort(
        key=lambda key: (
            key not in reference or key not in other,
            key in LAST,
            FIRST.index(key) if key in FIRST else len(FIRST),
            key,
        )
    )
    arrow = glyphs().arrow
    said = []
    for key in keys:
        one, two = reference.get(key), other.get(key)
        said.append(f"{key} {_value(one, two)} {arrow} {_value(two, one)}")
    if len(said) > MOST_SAID:
        return (*said[:MOST_SAID], f"{len(said) - MOST_SAID} more differ")
    return tuple(said)


def _same(one: str | None, other: str | None) -> bool:
    if one == other:
        return True
    try:
        return one is not None and other is not None and float(one) == float(other)
    except ValueError:
        return False


def _value(value: str | None, other: str | None) -> str:
    """Write a value short: of a path what is not the same at the beginning."""
    if value is None:
        return NONE
    if other is not None and "/" in value:
        head, name = value.rpartition("/")[::2]
        if name and name != other.rpartition("/")[2]:
            value = name
        elif head:
            value = f"{glyphs().ellipsis}{value[-LONGEST:]}" if len(value) > LONGEST else value
    return value if len(value) <= LONGEST else value[: LONGEST - 1] + glyphs().ellipsis
