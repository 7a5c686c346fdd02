"""The warning before a stop: in words, and onto the terminals of the box, with the command that puts it off."""

from __future__ import annotations

import os
import stat

from rgt_box import background, place
from rgt_box.sampling import quiet_signs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping

WALL_TIMEOUT = 5.0


def span(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 120:
        return "%.0f s" % seconds
    return "%.0f min" % (seconds / 60) if seconds < 7200 else "%.1f h" % (seconds / 3600)


def text(plan: Mapping[str, Any], mode: str, stops_in: float, unsaving: list[str]) -> str:
    """Return the warning, on one line."""
    why = (
        "idle for %s" % span(plan["idle_s"])
        if mode == "idle"
        else "its lease of %s ends" % span(plan["lease_s"])
    )
    ask = plan["action"] == "ask"
    what = "should be stopped, which it cannot do itself" if ask else "will be parked"
    words = "%s: this box %s in %s" % (why, what, span(stops_in))
    if mode == "lease" and unsaving:
        words += "; not known to save on SIGTERM: %s" % ", ".join(unsaving[:5])
    return words


def keep_command() -> str:
    """Return what a person types on the box itself to put a stop off."""
    return " ".join([*place.command("autostop"), "--keep", "2h"])


def write_to_terminals(words: str) -> int:
    """Write a warning to every terminal that somebody may look at; returns to how many of this user's.

    ``wall`` reaches those whose login is on record, which in containers are none: so this user's own are written to
    directly, and ``wall`` is left to those of others.
    """
    message = "\r\nrgt: %s.\r\nTo keep it: %s\r\n" % (_plain(words), _plain(keep_command()))
    reached, others = 0, False
    for path in sorted(quiet_signs.terminals()):
        try:
            seen = os.stat(path)
            if not stat.S_ISCHR(seen.st_mode) or os.path.basename(path) == "ptmx":
                continue
            if seen.st_uid != os.geteuid():
                others = others or not path.startswith("/dev/tty")
                continue
            if path.startswith("/dev/tty"):
                continue
            fd = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.write(fd, message.encode("utf-8", "replace"))
            reached += 1
        except OSError:
            pass  # nobody reads there, and it is full
        finally:
            os.close(fd)
    if others and background.which("wall") is not None:
        try:
            background.run_program(["wall", message.replace("\r", "")], WALL_TIMEOUT)
        except TimeoutError:
            pass
    return reached


def _plain(words: str) -> str:
    return "".join(char if char.isprintable() else " " for char in words)
