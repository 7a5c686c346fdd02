"""The exit statuses of all commands, in one table: ``--help``, the documents and the code have them from here."""

from __future__ import annotations

OK = 0
TROUBLE = 1
FAILED = 1
USAGE = 2
UNKNOWN = 2
UNREACHABLE = 3
INTERRUPTED = 130

Meaning = tuple[int, str]

_CONFIG: Meaning = (USAGE, "wrong command line, or a fleet file that cannot be used")
_TRUSTED: Meaning = (USAGE, "wrong command line, or a fleet file that cannot be used, or is not trusted")
_WAY: Meaning = (USAGE, "wrong command line, or a fleet file or ssh_config that cannot be used")

EXITS: dict[str, tuple[Meaning, ...]] = {
    "rgt": ((OK, "left"), (USAGE, "no terminal, no fleet file, or one that cannot be used")),
    "demo": (
        (OK, "left, or all that was asked for has happened"),
        (FAILED, "with --until: a story is missing, and is named"),
        (USAGE, "it cannot run here, and why"),
    ),
    "init": (
        (OK, "written"),
        (FAILED, "a file stands there already, or cannot be written"),
        (USAGE, "wrong command line"),
    ),
    "add": (
        (OK, "added"),
        (FAILED, "the fleet file cannot be written"),
        (USAGE, "wrong command line, a name that is taken, or a fleet file that cannot be used"),
    ),
    "import": (
        (OK, "listed, or written"),
        (FAILED, "nothing matches, or the fleet file cannot be written"),
        _CONFIG,
    ),
    "trust": (
        (OK, "it is trusted; with --revoke: it is not any more; with --list: listed"),
        (FAILED, "it is not trusted: refused, or nobody could be asked; with --revoke: it was not"),
        _CONFIG,
    ),
    "status": (
        (OK, "every box was reached and is fine"),
        (TROUBLE, "a box is in trouble, or wants a look"),
        _CONFIG,
        (
            UNREACHABLE,
            "a box could not be reached, or did not answer in time; of the others none is in trouble",
        ),
    ),
    "watch": ((OK, "ended by Ctrl-C, SIGTERM, or --for"), _TRUSTED),
    "patrol": (
        (OK, "healthy"),
        (TROUBLE, "escalate: somebody has to look"),
        (
            UNKNOWN,
            "could not tell: a box was not reached, or the fleet file cannot be used, or is not trusted",
        ),
    ),
    "alerts": ((OK, "every sink took it"), (FAILED, "one did not, and why"), _TRUSTED),
    "mute": (
        (OK, "muted, speaking again, or listed"),
        (FAILED, "the state file cannot be written"),
        _TRUSTED,
    ),
    "logs": (
        (OK, "printed, or ended by Ctrl-C"),
        (FAILED, "no such file on the box, or it cannot be read"),
        _WAY,
        (UNREACHABLE, "the box could not be reached in time"),
    ),
    "record": (
        (OK, "ended by Ctrl-C, SIGTERM, or --for"),
        (FAILED, "the file exists already, or cannot be written any more"),
        _CONFIG,
        (UNREACHABLE, "no box sent anything; the file holds why"),
    ),
    "replay": (
        (OK, "left, or played to its end"),
        (
            FAILED,
            "without a screen: played, but lines of it are damaged, or rgt failed at them; each is named",
        ),
        (USAGE, "wrong command line, no terminal, or not a recording"),
    ),
    "doctor": ((OK, "no check failed"), (FAILED, "a check failed"), (USAGE, "wrong command line")),
    "metrics": (
        (OK, "ended by Ctrl-C or SIGTERM; with --once: printed"),
        (FAILED, "the address cannot be listened on"),
        _TRUSTED,
    ),
    "scalars": ((OK, "found"), (FAILED, "nothing was found"), (USAGE, "no such path")),
    "push": (
        (OK, "it is there, and the box has a Python that can run it"),
        (FAILED, "it cannot be written, or no Python there has torch"),
        _WAY,
        (UNREACHABLE, "the box could not be reached"),
    ),
    "remove": (
        (OK, "all of it is gone, or would be with --dry-run"),
        (FAILED, "something stays, and why; refused, or nobody could be asked"),
        _WAY,
        (UNREACHABLE, "the box could not be reached"),
    ),
    "agent": ((OK, "written"), (FAILED, "it cannot be written"), (USAGE, "wrong command line")),
    "completion": ((OK, "printed"), (USAGE, "wrong command line")),
}
"""Command → what each of its statuses means. Ctrl-C elsewhere ends with 130."""

UNTOLD: dict[str, int] = {"patrol": UNKNOWN, "status": UNREACHABLE}
"""Command → how it ends when nobody reads what it prints: not as if a box were in trouble. Others end with FAILED."""


def epilog(command: str, *examples: str) -> str:
    """Return the end of a command's ``--help``: its examples and its exit statuses."""
    lines = ["examples:" if len(examples) > 1 else "example:", *(f"  {example}" for example in examples)]
    lines += ["", "exit status:", *(f"  {code}  {text}" for code, text in EXITS[command])]
    return "\n".join(lines)
