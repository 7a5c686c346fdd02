"""The table of all commands: module, group in ``rgt --help``, summary, and exit statuses.

``--help``, the completion, the documentation and the code all use this table.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import argparse

OK = 0
TROUBLE = 1
FAILED = 1
USAGE = 2
UNKNOWN = 2
UNREACHABLE = 3
UNCONFIRMED = 4
NO_ROOM = 74
INTERRUPTED = 130

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The object that a command adds its parser to."""
Meaning = tuple[int, str]


class NotOpened(Exception):
    """The fleet file, or a box in it, cannot be used.

    The error was already printed; exit with `USAGE`.
    """


class Command(NamedTuple):
    """One command. Its module has ``run_NAME(arguments)``, its group's module ``NameArguments``.

    A hyphen in the name is an underscore in ``run_NAME``, and left out of the class name.
    """

    module: str
    group: str
    brief: str
    """Summary for its line in ``rgt --help``."""
    statuses: tuple[Meaning, ...]
    untold: int = FAILED
    """Exit status if stdout is closed, chosen so that it does not report trouble on a box."""
    carries: bool = False
    """Whether the words after ``--`` are a command for a box, passed on exactly as typed
    (`words`)."""


GROUPS = {
    "Set up": "set_up.set_up_arguments",
    "Watch": "watch_arguments",
    "Logs": "watch_arguments",
    "Failures": "watch_arguments",
    "Push": "bringing.bringing_arguments",
    "Work": "work.work_arguments",
    "Box tools": "work.work_arguments",
    "Results": "teardown.money_arguments",
    "Money": "teardown.money_arguments",
}
"""Each group, in the order of ``rgt --help``, and the module of its arguments. Empty groups are
hidden."""

_LINE: Meaning = (USAGE, "wrong command line")
_CONFIG: Meaning = (USAGE, "wrong command line, or a fleet file that cannot be used")
_TRUSTED: Meaning = (
    USAGE,
    "wrong command line, or a fleet file that cannot be used, or is not trusted",
)
_WAY: Meaning = (USAGE, "wrong command line, or a fleet file or ssh_config that cannot be used")
_NO_BOX: Meaning = (UNREACHABLE, "the box could not be reached")
_LOST: Meaning = (UNREACHABLE, "the box could not be reached, or was lost")

DASHBOARD: tuple[Meaning, ...] = (
    (OK, "dashboard closed"),
    (USAGE, "no usable terminal, no fleet file, or one that cannot be used"),
)
"""Exit statuses of ``rgt`` without a command."""

COMMANDS: dict[str, Command] = {
    "demo": Command(
        "demo", "Set up", "watch three boxes on this machine that really train",
        (
            (OK, "quit, or everything asked for has happened"),
            (FAILED, "with --until: a story did not happen, and is named"),
            (USAGE, "it cannot run here, and why"),
        ),
    ),
    "init": Command(
        "set_up.adding", "Set up", "create a starter fleet file",
        ((OK, "written"), (FAILED, "the file already exists, or cannot be written"), _LINE),
    ),
    "add": Command(
        "set_up.adding", "Set up", "add a box to the fleet file",
        (
            (OK, "added"),
            (FAILED, "the fleet file cannot be written"),
            (USAGE, "wrong command line, a name that is taken, or a fleet file that cannot be used"),
        ),
    ),
    "import": Command(
        "renting.account_import", "Set up", "add hosts from ssh_config, or machines of a provider, to the fleet file",
        (
            (OK, "listed, or written"),
            (FAILED, "nothing to import, or the fleet file cannot be written"),
            _CONFIG,
            (UNREACHABLE, "with --from: an account could not be listed; nothing was written"),
        ),
    ),
    "trust": Command(
        "set_up.trust", "Set up", "allow a fleet file in the working tree to act",
        (
            (OK, "it is trusted; with --revoke: no longer; with --list: listed"),
            (FAILED, "it is not trusted: refused, or nobody to ask; with --revoke: it was not trusted"),
            _CONFIG,
        ),
    ),
    "doctor": Command(
        "set_up.doctor", "Set up", "check this machine, the fleet file and every box",
        ((OK, "no check failed; --record: written"), (FAILED, "a check failed; --record: no answer"), _LINE),
    ),
    "remove": Command(
        "set_up.box_files", "Set up", "remove rgt from a box",
        (
            (OK, "all of it is gone, or would be with --dry-run"),
            (FAILED, "something was left, and why; refused, or nobody to ask"),
            _WAY,
            _NO_BOX,
        ),
    ),
    "completion": Command(
        "arguments", "Set up", "print the completion script of a shell",
        ((OK, "printed"), _LINE),
    ),
    "agent": Command(
        "set_up.box_files", "Set up", "build the agent that rgt puts on a box",
        ((OK, "written"), (FAILED, "it cannot be written"), _LINE),
    ),
    "status": Command(
        "status", "Watch", "connect once and print a line per box",
        (
            (OK, "every box was reached and is fine"),
            (TROUBLE, "a box is in trouble, or needs a look"),
            _CONFIG,
            (UNREACHABLE, "a box could not be reached, or did not answer in time; none of the others is in trouble"),
        ),
        untold=UNREACHABLE,
    ),
    "watch": Command(
        "watch", "Watch", "print what happens, until Ctrl-C",
        ((OK, "ended by Ctrl-C, SIGTERM, or --for"), _TRUSTED),
    ),
    "serve": Command(
        "serving", "Watch", "show the dashboard in a browser on this machine, read-only",
        (
            (OK, "ended by Ctrl-C or SIGTERM"),
            (FAILED, "the port is taken"),
            (USAGE, "wrong command line, textual-serve is not installed, or a fleet file that is not trusted"),
        ),
    ),
    "patrol": Command(
        "status", "Watch", "take one read-only look, for cron",
        (
            (OK, "healthy"),
            (TROUBLE, "escalate: somebody has to look"),
            (UNKNOWN, "could not tell: a box was not reached, or the fleet file cannot be used, or is not trusted"),
        ),
        untold=UNKNOWN,
    ),
    "journal": Command(
        "past_events", "Watch", "print what happened, and the report of the night",
        (
            (OK, "printed, even if nothing has happened"),
            (FAILED, "no history is kept, or it cannot be read"),
            _CONFIG,
        ),
    ),
    "alerts": Command(
        "alert_commands", "Watch", "test the sinks that alerts go to",
        ((OK, "every sink accepted it"), (FAILED, "one did not, and why"), _TRUSTED),
    ),
    "mute": Command(
        "alert_commands", "Watch", "silence the alerts of a box for a while",
        ((OK, "muted, unmuted, or listed"), (FAILED, "the state file cannot be written"), _TRUSTED),
    ),
    "metrics": Command(
        "metrics", "Watch", "serve the fleet's figures to Prometheus",
        (
            (OK, "ended by Ctrl-C or SIGTERM; with --once: printed"),
            (FAILED, "cannot listen on the address"),
            _TRUSTED,
        ),
    ),
    "record": Command(
        "watch", "Watch", "record what the boxes send, for rgt replay",
        (
            (OK, "ended by Ctrl-C, SIGTERM, or --for"),
            (FAILED, "the file already exists, or can no longer be written"),
            _CONFIG,
            (UNREACHABLE, "no box sent anything; the file holds why"),
        ),
    ),
    "replay": Command(
        "demo", "Watch", "show what rgt record wrote",
        (
            (OK, "quit, or played to the end"),
            (FAILED, "without a screen: played, but lines of it are damaged, or rgt failed at them; each is named"),
            (USAGE, "wrong command line, no usable terminal, or not a recording"),
        ),
    ),
    "logs": Command(
        "logs", "Logs", "print a log of a box, exactly",
        (
            (OK, "printed, or ended by Ctrl-C"),
            (FAILED, "no such file on the box, or it cannot be read"),
            _WAY,
            (UNREACHABLE, "the box could not be reached in time"),
        ),
    ),
    "curves": Command(
        "curves", "Logs", "plot the curves of a run as text",
        (
            (OK, "printed"),
            (FAILED, "no such run or series on the box, or none at all"),
            _CONFIG,
            _NO_BOX,
        ),
    ),
    "scalars": Command(
        "curves", "Logs", "list the scalars in a file or a directory",
        ((OK, "found"), (FAILED, "nothing was found"), (USAGE, "no such path")),
    ),
    "run": Command(
        "work.run_job", "Work", "start a command on a box, detached, and see how it begins",
        (
            (OK, "alive (even if no step was seen yet, which is said), done, or waiting in Slurm's queue"),
            (FAILED, "it died, or the smoke command failed: the last lines are shown; it runs with other code"),
            (USAGE, "wrong command line or fleet file, another job has that name, or it cannot be run there"),
            _LOST,
        ),
        untold=UNREACHABLE,
        carries=True,
    ),
    "queue": Command(
        "work.queue_commands", "Work", "add to, run, check and reconcile the queue of a box, or of several",
        (
            (OK, "done; for run: alive; for reconcile: every cell is there and complete"),
            (FAILED, "a cell died or is incomplete, or a line remains; or a runner is alive, and nothing was changed"),
            (USAGE, "wrong command line or fleet file; the queue cannot be run; for reconcile: could not tell"),
            _LOST,
        ),
        untold=UNREACHABLE,
        carries=True,
    ),
    "ssh": Command(
        "work.shells", "Work", "open a shell on a box, connected the way rgt connects",
        (
            (OK, "the shell ended with 0; otherwise as ssh ends: with its status, or 255"),
            (FAILED, "there is no ssh program here"),
            _WAY,
            _NO_BOX,
        ),
        carries=True,
    ),
    "exec": Command(
        "work.shells", "Work", "run one command on a box and pass on its exit status",
        (
            (OK, "the command ended with 0; otherwise its own status, 128+N of a signal"),
            _WAY,
            (UNREACHABLE, "the box could not be reached, or was lost, which is said; or the command's own 3"),
        ),
        carries=True,
    ),
    "tunnel": Command(
        "work.shells", "Work", "forward local ports to a box, until Ctrl-C",
        (
            (OK, "ended by Ctrl-C or SIGTERM"),
            (FAILED, "no local port was available"),
            _WAY,
            (UNREACHABLE, "the box could not be reached at first, or refuses the login now"),
        ),
    ),
    "code": Command(
        "work.shells", "Work", "print what editors need to open a directory of a box",
        ((OK, "printed, or written"), (FAILED, "it cannot be written"), _WAY),
    ),
    "stop": Command(
        "work.box_tools", "Work", "end a run so that it can save, and say what it has saved",
        (
            (OK, "it has ended"),
            (FAILED, "it has not, or you did not confirm it"),
            (USAGE, "wrong command line or fleet file, no such run, or several"),
            _LOST,
        ),
    ),
    "gpu-health": Command(
        "work.box_tools", "Box tools", "check the GPUs before a run",
        (
            (OK, "nothing is wrong"),
            (TROUBLE, "trouble; each is named"),
            (UNKNOWN, "could not tell; or a wrong command line or fleet file"),
            _LOST,
        ),
    ),
    "reap": Command(
        "work.box_tools", "Box tools", "list processes that hold GPU memory without working, and end one",
        (
            (OK, "nothing is orphaned, or it was ended"),
            (TROUBLE, "something is orphaned, or was not ended, and why"),
            (UNKNOWN, "could not tell; or a wrong command line or fleet file"),
            _LOST,
        ),
    ),
    "grep": Command(
        "work.box_tools", "Box tools", "search logs on a box, the newest lines first",
        ((OK, "something matched"), (FAILED, "nothing did"), _WAY, _LOST),
    ),
    "manifest": Command(
        "work.box_tools", "Box tools", "list the files below a directory of a box with their SHA-256",
        ((OK, "everything is listed"), (FAILED, "something is not; each is named"), _WAY, _LOST),
    ),
    "mirror": Command(
        "work.box_tools", "Box tools", "copy a directory on a box to durable storage, read back and compared",
        (
            (OK, "every file was verified"),
            (FAILED, "one was not, and is named; or another mirror to there is running"),
            _WAY,
            _LOST,
            (NO_ROOM, "there is no room for it; needed and free are named"),
        ),
    ),
    "triage": Command(
        "triage_files", "Failures", "name what broke in a log, with proof and fix",
        (
            (OK, "nothing known is wrong in any of them"),
            (TROUBLE, "a known failure was found; each is named"),
            (UNKNOWN, "wrong command line, or a file that cannot be read"),
        ),
    ),
    "handbook": Command(
        "handbook_command", "Failures", "search the handbook of known failures, or draft a page",
        (
            (OK, "found, listed, or drafted"),
            (FAILED, "no page is about that; with new: it exists already, or cannot be written"),
            (USAGE, "wrong command line, or a page of your own that cannot be used"),
        ),
    ),
    "pull": Command(
        "teardown.pull", "Results", "copy the results of a box here, verified",
        (
            (OK, "everything asked for is here, verified; with --dry-run: could be pulled"),
            (FAILED, "something was refused, changed, not confirmed, or belongs to nobody; each is named"),
            _WAY,
            (UNREACHABLE, "the box could not be reached, or was lost; the next rgt pull resumes"),
        ),
    ),
    "verify": Command(
        "teardown.verifying", "Results", "prove that a directory of results is complete and loads",
        (
            (OK, "all of it is complete; PULL_VERIFIED.json in it says so"),
            (FAILED, "something is damaged, missing, or would run code; each is named"),
            (USAGE, "wrong command line, or a directory that cannot be looked into"),
        ),
    ),
    "down": Command(
        "teardown.down", "Money", "stop the meter of a box, on evidence",
        (
            (OK, "the provider confirms; what keeps billing is named; --dry-run: it would pass; --done: recorded"),
            (FAILED, "refused, and why: nothing was sent"),
            _TRUSTED,
            (UNREACHABLE, "the box or its provider could not be reached, and nothing was sent"),
            (UNCONFIRMED, "sent, and not confirmed: look at the console, and at rgt audit; or the click is yours"),
        ),
        untold=UNCONFIRMED,
    ),
    "up": Command(
        "renting.up", "Money", "rent a machine and add it to the fleet file",
        (
            (OK, "rented as agreed, and it answers; with --dry-run: would be rented; with --written-off: noted"),
            (FAILED, "refused, and why: nothing was rented; or it was ended again"),
            _TRUSTED,
            (UNREACHABLE, "no market could be asked, nothing was sent; or it is rented, BILLS, and does not answer"),
            (UNCONFIRMED, "sent, and its outcome is unknown; or it is not as agreed, or its check refuses it"),
        ),
        untold=UNCONFIRMED,
    ),
    "bid": Command(
        "renting.bid", "Money", "raise or lower the bid of a spot machine (Vast.ai)",
        (
            (OK, "the platform shows the new bid; with --dry-run: it would be sent"),
            (FAILED, "refused, and why: the bid is as it was"),
            _TRUSTED,
            (UNREACHABLE, "the bid could not be read, and nothing was sent"),
            (UNCONFIRMED, "sent, and the platform does not show it: run it again, which reads first"),
        ),
        untold=UNCONFIRMED,
    ),
    "check-box": Command(
        "renting.box_check", "Money", "try out a box before you spend money on it: GPUs, disk, network",
        (
            (OK, "nothing was found against it; doubts are named"),
            (FAILED, "refuse it: what it was rented for does not work, or it is far slower than its peers"),
            _WAY,
            _NO_BOX,
        ),
    ),
    "autostop": Command(
        "autostop.arm_command", "Money", "arm a box to park itself when it is idle",
        (
            (OK, "armed; with --dry-run: it would be; with --status: printed; with --disarm: disarmed"),
            (FAILED, "refused, and why: nothing was armed"),
            _TRUSTED,
            (UNREACHABLE, "the box could not be reached; or the outcome is not known: look at --status"),
        ),
    ),
    "lease": Command(
        "autostop.arm_command", "Money", "give a box a hard deadline that it enforces itself",
        (
            (OK, "armed; with --dry-run: it would be"),
            (FAILED, "refused, and why: nothing was armed"),
            _TRUSTED,
            (UNREACHABLE, "the box could not be reached; or the outcome is not known: look at autostop --status"),
        ),
    ),
    "keep": Command(
        "autostop.arm_command", "Money", "postpone what a box would do to itself",
        ((OK, "put off"), (FAILED, "it is not armed, or it cannot be written down"), _WAY, _NO_BOX),
    ),
    "notify": Command(
        "autostop.notify", "Money", "give a box an address that it can notify on its own",
        ((OK, "done, as it says"), (FAILED, "the box refuses, and says why"), _WAY, _NO_BOX),
    ),
    "audit": Command(
        "teardown.auditing", "Money", "print who stopped what and when, and verify the record",
        (
            (OK, "printed; with --verify: the record is complete"),
            (FAILED, "with --verify: it is broken, and its first such line is named; --receipt: there is none"),
            (USAGE, "wrong command line, or the record or the journal cannot be read"),
        ),
    ),
    "profiles": Command(
        "teardown.platforms", "Money", "list the platforms, and what each does on its own",
        (
            (OK, "printed; check: every fact about money or data has a source"),
            (FAILED, "check: one has none, or one that is too old"),
            (USAGE, "wrong command line, no such platform, or a profile that cannot be used"),
        ),
    ),
    "mirrors": Command(
        "bringing.secrets_and_mirrors", "Push", "turn a platform's mirrors and proxy on or off on a box",
        (
            (OK, "shown, or turned on or off"),
            (FAILED, "the platform has none that rgt could turn on, or a file there could not be changed"),
            _WAY,
            _NO_BOX,
        ),
    ),
    "secret": Command(
        "bringing.secrets_and_mirrors", "Push", "put a key or token on a box, where nobody else can read it",
        (
            (OK, "it is kept there; listed, or removed"),
            (FAILED, "refused: others would read it there, and where it may lie instead; or there is none"),
            _WAY,
            _NO_BOX,
        ),
    ),
    "push": Command(
        "bringing.push_to_box", "Push", "push code or data to a box, or the resumable trainer",
        (
            (OK, "it is there, complete; with --list and --prune: listed, or removed"),
            (FAILED, "it does not fit, or something was refused, each is named; --trainer: no Python there has torch"),
            _WAY,
            (UNREACHABLE, "the box could not be reached, or was lost; the next rgt push resumes"),
        ),
    ),
}  # fmt: skip
"""Keyed by name; within a group in the order of ``rgt --help``."""


def statuses(command: str) -> tuple[Meaning, ...]:
    """Return the exit statuses of a command, or of ``rgt`` itself.

    Ctrl-C elsewhere exits with 130.
    """
    if command == "rgt":
        return DASHBOARD
    return COMMANDS[command].statuses


def epilog(command: str, *examples: str) -> str:
    """Return the end of a command's ``--help``: its examples and its exit statuses."""
    lines = [
        "examples:" if len(examples) > 1 else "example:",
        *(f"  {example}" for example in examples),
    ]
    lines += ["", "exit status:", *(f"  {code}  {text}" for code, text in statuses(command))]
    return "\n".join(lines)


def overview() -> str:
    """Return all commands by their groups, as ``rgt --help`` shows them."""
    lines = []
    for group in GROUPS:
        rows = [
            f"  {name:<12} {command.brief}"
            for name, command in COMMANDS.items()
            if command.group == group
        ]
        lines += [f"{group}:", *rows, ""] if rows else []
    return "\n".join(lines)


def runner(name: str) -> Callable[[Any], int]:
    """Return the function that runs a command and returns its exit status."""
    runs: Callable[[Any], int] = getattr(
        import_module(module_name(name)), f"run_{name.replace('-', '_')}"
    )
    return runs


def module_name(name: str) -> str:
    """Return the full name of a command's module."""
    return f"rgt_tui.cli.{COMMANDS[name].module}"
