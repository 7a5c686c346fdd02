"""Entry point: pick a verb and import only what it needs, so that the zipapp starts in tens of milliseconds."""

from __future__ import annotations

import os
import sys

if __package__ in (None, ""):  # started as a directory or a script from a source tree
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

VERBS = {
    "sample": ("rgt_box.sampling.command", "print one full sample as a JSON line"),
    "watch": ("rgt_box.streams.command", "stream frames: config on stdin, frames on stdout"),
    "record": ("rgt_box.history.command", "start or stop the detached recorder"),
    "queue": ("rgt_box.cells.command", "run, check or show a queue of cells"),
    "detach": ("rgt_box.cells.detach", "start `queue run` detached (tmux, else setsid)"),
}
"""Verb → (module with a ``main(argv)``, one line of help)."""


def usage() -> str:
    """Return the overview of verbs."""
    lines = ["usage: python3 rgt-box.pyz VERB [options]   (VERB --help tells more)", ""]
    return "\n".join(lines + ["  %-8s %s" % (verb, text) for verb, (_, text) in VERBS.items()])


def main(argv: list[str] | None = None) -> int:
    """Run one verb.

    Args:
        argv: Words after the program's name; the process's own by default.

    Returns:
        The exit status; 2 for a wrong command line.
    """
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] not in VERBS:
        print("unknown verb: %s\n\n%s" % (words[0], usage()), file=sys.stderr)
        return 2
    module = __import__(VERBS[words[0]][0], fromlist=["main"])
    status: int = module.main(words[1:])
    return status


if __name__ == "__main__":
    raise SystemExit(main())
