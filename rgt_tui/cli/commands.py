"""The table of all commands: module, group in ``rgt --help``, summary, and exit statuses.

``--help``, the completion, the documentation and the code all use this table.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rgt_tui.language import translate

# `rgt --version` and completion need no parser class at run time.
if TYPE_CHECKING:
    import argparse

OK = 0
# Equal numbers have several names: scripts see the number, the code says which meaning it has.
TROUBLE = 1
FAILED = 1
USAGE = 2
# patrol, triage and the GPU commands: unknown is neither success nor trouble.
UNKNOWN = 2
UNREACHABLE = 3
# Its own number, because repeating such a command could rent or stop twice.
UNCONFIRMED = 4
# As the agent's: `rgt mirror` passes its exit status on.
NO_ROOM = 74
# 128 + SIGINT, as shells report it.
INTERRUPTED = 130

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The object that a command adds its parser to."""
Meaning = tuple[int, str]


class NotOpened(Exception):
    """The fleet file, or a box in it, cannot be used.

    The error was already printed; exit with `USAGE`.
    """


class CliCommand(NamedTuple):
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


# Groups share a module of arguments, so that --help of one command loads one small module.
GROUPS = {
    "Set up": "set_up.set_up_arguments",
    "Watch": "watch_arguments",
    "Logs": "watch_arguments",
    "Failures": "watch_arguments",
    "Push": "set_up.bringing_arguments",
    "Work": "work.work_arguments",
    "Box tools": "work.work_arguments",
    "Results": "teardown.money_arguments",
    "Money": "teardown.money_arguments",
}
"""Each group, in the order of ``rgt --help``, and the module of its arguments. Empty groups are
hidden."""

# The common meanings have one text each, because each is translated and documented once.
_LINE: Meaning = (USAGE, "wrong command line")
_CONFIG: Meaning = (USAGE, "wrong command line, or a fleet file that cannot be used")
_TRUSTED: Meaning = (
    USAGE,
    "wrong command line, or a fleet file that cannot be used, or is not trusted",
)
_WAY: Meaning = (USAGE, "wrong command line, or a fleet file or ssh_config that cannot be used")
_NO_BOX: Meaning = (UNREACHABLE, "the box could not be reached")
_LOST: Meaning = (UNREACHABLE, "the box could not be reached, or the connection was lost")

DASHBOARD: tuple[Meaning, ...] = (
    (OK, "dashboard closed"),
    (USAGE, "no usable terminal, no fleet file, or one that cannot be used"),
)
"""Exit statuses of ``rgt`` without a command."""

# Only data here, no imports: this table is read before the command is known. The numbers are
# promised to scripts: a command keeps the meaning of each.
COMMANDS: dict[str, CliCommand] = {
    "demo": CliCommand(
        "demo", "Set up", "watch three boxes on this machine that really train",
        (
            (OK, "you quit, or every requested story happened"),
            (FAILED, "with --until: a story did not happen; the output names it"),
            (USAGE, "it cannot run here; the reason is printed"),
        ),
    ),
    "init": CliCommand(
        "set_up.adding", "Set up", "create a starter fleet file",
        ((OK, "written"), (FAILED, "the file already exists, or cannot be written"), _LINE),
    ),
    "add": CliCommand(
        "set_up.adding", "Set up", "add a box to the fleet file",
        (
            (OK, "added"),
            (FAILED, "the fleet file cannot be written"),
            (USAGE,
             "wrong command line, a name that is taken, or a fleet file that cannot be used"),
        ),
    ),
    "import": CliCommand(
        "renting.account_import", "Set up",
        "add hosts from ssh_config, or machines of a provider, to the fleet file",
        (
            (OK, "listed, or written"),
            (FAILED, "nothing to import, or the fleet file cannot be written"),
            _CONFIG,
            (UNREACHABLE, "with --from: an account could not be listed; nothing was written"),
        ),
    ),
    "trust": CliCommand(
        "set_up.trust", "Set up", "allow a fleet file in the working tree to act",
        (
            (OK, "trusted; with --revoke: no longer trusted; with --list: listed"),
            (FAILED,
             ("not trusted: you refused, or there is no terminal to ask on; with --revoke: it was "
              "not trusted")),
            _CONFIG,
        ),
    ),
    "doctor": CliCommand(
        "set_up.doctor", "Set up", "check this machine, the fleet file and every box",
        (
            (OK, "no check failed; --record: written"),
            (FAILED, "a check failed; --record: no answer"),
            _LINE,
        ),
    ),
    "remove": CliCommand(
        "set_up.box_files", "Set up", "remove rgt from a box",
        (
            (OK, "everything was removed; with --dry-run: would be removed"),
            (FAILED,
             "some of it is left, with the reason; you refused, or there is no terminal to ask on"),
            _WAY,
            _NO_BOX,
        ),
    ),
    "completion": CliCommand(
        "arguments", "Set up", "print the completion script of a shell",
        ((OK, "printed"), _LINE),
    ),
    "agent": CliCommand(
        "set_up.box_files", "Set up", "build the agent that rgt puts on a box",
        ((OK, "written"), (FAILED, "it cannot be written"), _LINE),
    ),
    "status": CliCommand(
        "status", "Watch", "connect once and print a line per box",
        (
            (OK, "every box was reached and is fine"),
            (TROUBLE, "a box is in trouble or needs attention"),
            _CONFIG,
            (UNREACHABLE,
             "a box could not be reached, or did not answer in time; no other box is in trouble"),
        ),
        # 1 would say "a box is in trouble", which an unread output does not prove.
        untold=UNREACHABLE,
    ),
    "night": CliCommand(
        "status", "Watch", "what each box will do until tomorrow noon, and what it costs",
        ((OK, "printed, also for boxes that were not reached: their night is unknown"), _CONFIG),
    ),
    "watch": CliCommand(
        "watch", "Watch", "print what happens, until Ctrl-C",
        ((OK, "stopped by Ctrl-C, SIGTERM or --for"), _TRUSTED),
    ),
    "serve": CliCommand(
        "serving", "Watch", "show the dashboard in a browser on this machine, read-only",
        (
            (OK, "stopped by Ctrl-C or SIGTERM"),
            (FAILED, "the port is taken"),
            (USAGE,
             ("wrong command line, textual-serve is not installed, or a fleet file that is not "
              "trusted")),
        ),
    ),
    "patrol": CliCommand(
        "status", "Watch", "check every box once, read-only, for cron",
        (
            (OK, "healthy"),
            (TROUBLE, "escalate: a box needs you"),
            (UNKNOWN,
             "unknown: a box was not reached, or the fleet file is unusable or not trusted"),
        ),
        # A full disk below cron: what patrol found was not written.
        untold=UNKNOWN,
    ),
    "journal": CliCommand(
        "past_events", "Watch", "print what happened, and a report of the night",
        (
            (OK, "printed, even if nothing has happened"),
            (FAILED, "no history is kept, or it cannot be read"),
            _CONFIG,
        ),
    ),
    "alerts": CliCommand(
        "alert_commands", "Watch", "test the sinks that alerts go to",
        (
            (OK, "every sink accepted it"),
            (FAILED, "a sink did not accept it; the reason is printed"),
            _TRUSTED,
        ),
    ),
    "mute": CliCommand(
        "alert_commands", "Watch", "silence the alerts of a box for a while",
        ((OK, "muted, unmuted, or listed"), (FAILED, "the state file cannot be written"), _TRUSTED),
    ),
    "metrics": CliCommand(
        # Without a status for trouble: Prometheus reads it from the figures.
        "metrics", "Watch", "serve the fleet's figures to Prometheus",
        (
            (OK, "stopped by Ctrl-C or SIGTERM; with --once: printed"),
            (FAILED, "cannot listen on the address"),
            _TRUSTED,
        ),
    ),
    "record": CliCommand(
        "watch", "Watch", "record what the boxes send, for rgt replay",
        (
            (OK, "stopped by Ctrl-C, SIGTERM or --for"),
            (FAILED, "the file already exists, or can no longer be written"),
            _CONFIG,
            (UNREACHABLE, "no box sent anything; the reasons are in the file"),
        ),
    ),
    "replay": CliCommand(
        "demo", "Watch", "show what rgt record wrote",
        (
            (OK, "you quit, or the recording ended"),
            (FAILED,
             "without a screen: played, but some lines are damaged or unreadable; each is listed"),
            (USAGE, "wrong command line, no usable terminal, or not a recording"),
        ),
    ),
    "logs": CliCommand(
        "logs", "Logs", "print a log of a box, exactly",
        (
            (OK, "printed, or stopped by Ctrl-C"),
            (FAILED, "no such file on the box, or it cannot be read"),
            _WAY,
            (UNREACHABLE, "the box could not be reached in time"),
        ),
    ),
    "curves": CliCommand(
        "curves", "Logs", "plot the curves of a run as text",
        (
            (OK, "printed"),
            (FAILED, "no such run or series on the box, or none at all"),
            _CONFIG,
            _NO_BOX,
        ),
    ),
    "scalars": CliCommand(
        "curves", "Logs", "list the scalars in a file or a directory",
        ((OK, "found"), (FAILED, "nothing was found"), (USAGE, "no such path")),
    ),
    "smoke": CliCommand(
        "work.local_smoke", "Work",
        "try a training on this machine's CPU, two batches, before a box is rented",
        (
            (OK, "the command exited with 0; otherwise its exit status, or 128+N for a signal"),
            (USAGE, "wrong command line; or the command exited with 2"),
            # As timeout(1) does.
            (124, "it did not end within the time limit, and had not failed until then"),
        ),
        carries=True,
    ),
    "run": CliCommand(
        "work.run_job", "Work", "start a command on a box, detached, and watch its start",
        (
            (OK, "running (a missing first step is reported), done, or waiting in Slurm's queue"),
            (FAILED,
             ("it died, or the smoke command failed (with the last lines); or it already runs with "
              "other code")),
            (USAGE,
             ("wrong command line or fleet file, another job has that name, or it cannot be run "
              "there")),
            _LOST,
        ),
        # The job may have started: 3 makes a script look before it starts it again.
        untold=UNREACHABLE,
        carries=True,
    ),
    "queue": CliCommand(
        "work.queue_commands", "Work",
        "add to, run, check and reconcile the queue of one or more boxes",
        (
            (OK, "done; for run: running; for reconcile: every cell is present and complete"),
            (FAILED,
             ("a cell died or is incomplete, or a line is left; or a runner is active and nothing "
              "was changed")),
            (USAGE,
             "wrong command line or fleet file; the queue cannot be run; for reconcile: unknown"),
            _LOST,
        ),
        untold=UNREACHABLE,
        carries=True,
    ),
    "ssh": CliCommand(
        "work.shells", "Work", "open a shell on a box, over the same SSH route as rgt",
        (
            # rgt replaces itself by ssh, so the statuses are ssh's own.
            (OK, "the shell exited with 0; otherwise its exit status, or 255 from ssh"),
            (FAILED, "there is no ssh program here"),
            _WAY,
            _NO_BOX,
        ),
        carries=True,
    ),
    "exec": CliCommand(
        "work.shells", "Work", "run one command on a box and pass on its exit status",
        (
            (OK, "the command exited with 0; otherwise its exit status, or 128+N for a signal"),
            _WAY,
            # Ambiguous on purpose: the command's status is passed on unchanged, and stderr says
            # which it was.
            (UNREACHABLE,
             "box not reached or connection lost, which is reported; or the command exited with 3"),
        ),
        carries=True,
    ),
    "tunnel": CliCommand(
        "work.shells", "Work", "forward local ports to a box, until Ctrl-C",
        (
            (OK, "stopped by Ctrl-C or SIGTERM"),
            (FAILED, "no local port was available"),
            _WAY,
            (UNREACHABLE, "the box could not be reached at first, or refuses the login now"),
        ),
    ),
    "code": CliCommand(
        "work.shells", "Work", "print what editors need to open a directory of a box",
        ((OK, "printed, or written"), (FAILED, "it cannot be written"), _WAY),
    ),
    "stop": CliCommand(
        "work.box_tools", "Work", "stop a run so that it can save, and show what it saved",
        (
            (OK, "it has ended"),
            (FAILED, "it is still running, or you did not confirm"),
            (USAGE, "wrong command line or fleet file, no such run, or several"),
            _LOST,
        ),
    ),
    "gpu-health": CliCommand(
        "work.box_tools", "Box tools", "check the GPUs before a run",
        (
            (OK, "nothing is wrong"),
            (TROUBLE, "problems found; each is listed"),
            (UNKNOWN, "unknown; or a wrong command line or fleet file"),
            _LOST,
        ),
    ),
    "reap": CliCommand(
        "work.box_tools", "Box tools", "list idle processes that occupy GPU memory, and end one",
        (
            (OK, "no orphan found, or it was ended"),
            (TROUBLE, "an orphan was found, or was not ended; the reason is printed"),
            (UNKNOWN, "unknown; or a wrong command line or fleet file"),
            _LOST,
        ),
    ),
    "grep": CliCommand(
        "work.box_tools", "Box tools", "search logs on a box, the newest lines first",
        ((OK, "something matched"), (FAILED, "nothing matched"), _WAY, _LOST),
    ),
    "manifest": CliCommand(
        "work.box_tools", "Box tools",
        "list the files below a directory of a box with their SHA-256",
        ((OK, "everything is listed"), (FAILED, "some file is not listed; each is named"), _WAY,
         _LOST),
    ),
    "mirror": CliCommand(
        "work.box_tools", "Box tools",
        "copy a directory on a box to durable storage or S3, read back and compared",
        (
            (OK, "every file was verified"),
            (FAILED,
             ("a file was not verified (each is named), or another mirror to that directory is "
              "running")),
            _WAY,
            _LOST,
            (NO_ROOM, "not enough space; needed and free space are printed"),
        ),
    ),
    "triage": CliCommand(
        "triage_files", "Failures", "name what broke in a log, with proof and fix",
        (
            (OK, "no known failure found"),
            (TROUBLE, "known failures found; each is listed"),
            (UNKNOWN, "wrong command line, or a file that cannot be read"),
        ),
    ),
    "handbook": CliCommand(
        "handbook_command", "Failures", "search the handbook of known failures, or draft a page",
        (
            (OK, "found, listed, or drafted"),
            (FAILED, "no page matches; with new: it exists already, or cannot be written"),
            (USAGE, "wrong command line, or a page of your own that cannot be used"),
        ),
    ),
    "pull": CliCommand(
        "teardown.pull", "Results", "copy the results of a box here, verified",
        (
            (OK, "everything requested is here and verified; with --dry-run: can be pulled"),
            (FAILED, "some files were refused, changed, unconfirmed or unclaimed; each is listed"),
            _WAY,
            (UNREACHABLE,
             "the box could not be reached, or the connection was lost; the next rgt pull resumes"),
        ),
    ),
    "verify": CliCommand(
        "teardown.verifying", "Results", "prove that a directory of results is complete and loads",
        (
            (OK, "everything is complete, recorded in its PULL_VERIFIED.json"),
            (FAILED, "files are damaged, missing, or would run code; each is listed"),
            (USAGE, "wrong command line, or a directory that cannot be read"),
        ),
    ),
    "down": CliCommand(
        "teardown.down", "Money",
        "stop a box and its billing, after checking that no result is lost",
        (
            (OK,
             ("the provider confirms it (charges that continue are listed); --dry-run: allowed; "
              "--done: recorded")),
            (FAILED, "refused, with the reason; nothing was sent"),
            _TRUSTED,
            (UNREACHABLE, "the box or its provider could not be reached; nothing was sent"),
            (UNCONFIRMED,
             ("sent but not confirmed: check the console and rgt audit; or you have to click it "
              "yourself")),
        ),
        # The call may have been sent: 1 would say that it was refused.
        untold=UNCONFIRMED,
    ),
    "up": CliCommand(
        "renting.up", "Money", "rent a machine and add it to the fleet file",
        (
            (OK,
             ("rented as agreed, and SSH answers; with --dry-run: can be rented; with "
              "--written-off: noted")),
            (FAILED, "refused, with the reason: nothing was rented, or it was destroyed again"),
            _TRUSTED,
            (UNREACHABLE,
             ("no provider answered, nothing was sent; or it is rented and BILLED, but does not "
              "answer")),
            (UNCONFIRMED,
             "sent, outcome unknown; or the machine is not as agreed, or fails its check"),
        ),
        untold=UNCONFIRMED,
    ),
    "bid": CliCommand(
        "renting.bid", "Money", "raise or lower the bid of a spot machine (Vast.ai)",
        (
            (OK, "the platform shows the new bid; with --dry-run: it would be sent"),
            (FAILED, "refused, with the reason; the bid is unchanged"),
            _TRUSTED,
            (UNREACHABLE, "the bid could not be read; nothing was sent"),
            (UNCONFIRMED,
             "sent, but the platform does not show it: run it again (it reads the bid first)"),
        ),
        untold=UNCONFIRMED,
    ),
    "check-box": CliCommand(
        "renting.box_check", "Money",
        "test a box before you spend money on it: GPUs, disk, network",
        (
            (OK, "no problem found; doubts are listed"),
            (FAILED,
             "refuse it: something you rented does not work, or it is far slower than similar boxes"),
            _WAY,
            _NO_BOX,
        ),
    ),
    # No status 4: the box's own answer says whether it is armed.
    "autostop": CliCommand(
        "autostop.arm_command", "Money", "arm a box to park itself when it is idle",
        (
            (OK,
             "armed; with --dry-run: can be armed; with --status: printed; with --disarm: disarmed"),
            (FAILED, "refused, with the reason; nothing was armed"),
            _TRUSTED,
            (UNREACHABLE,
             "the box could not be reached; or the outcome is unknown: check --status"),
        ),
    ),
    "lease": CliCommand(
        "autostop.arm_command", "Money", "give a box a hard deadline that it enforces itself",
        (
            (OK, "armed; with --dry-run: can be armed"),
            (FAILED, "refused, with the reason; nothing was armed"),
            _TRUSTED,
            (UNREACHABLE,
             "the box could not be reached; or the outcome is unknown: check rgt autostop --status"),
        ),
    ),
    "keep": CliCommand(
        "autostop.arm_command", "Money", "postpone the autostop or lease of a box",
        ((OK, "postponed"), (FAILED, "it is not armed, or the box could not save the change"), _WAY,
         _NO_BOX),
    ),
    "notify": CliCommand(
        "autostop.notify", "Money", "give a box an address that it can notify on its own",
        ((OK, "done"), (FAILED, "the box refused; the reason is printed"), _WAY, _NO_BOX),
    ),
    "audit": CliCommand(
        "teardown.auditing", "Money", "print the log of billing actions, and verify it",
        (
            (OK, "printed; with --verify: the log is complete"),
            (FAILED, "with --verify: the log is broken (the first bad line is printed)"),
            (USAGE, "wrong command line, or the log or the journal cannot be read"),
        ),
    ),
    "receipt": CliCommand(
        "teardown.auditing", "Money", "print what a stop or destroy cost, kept and left billing",
        ((OK, "printed"), (FAILED, "there is no receipt of that box"), _LINE),
    ),
    "profiles": CliCommand(
        "teardown.platforms", "Money", "list the platforms, and what each does without you",
        (
            (OK, "printed; check: every fact about money or data has a source"),
            (FAILED, "check: a fact has no source, or one that is too old"),
            (USAGE, "wrong command line, no such platform, or a profile that cannot be used"),
        ),
    ),
    "mirrors": CliCommand(
        "set_up.secrets_and_mirrors", "Push",
        "turn a platform's mirrors and proxy on or off on a box",
        (
            (OK, "shown, or turned on or off"),
            (FAILED, "the platform has none that rgt can turn on, or a file could not be changed"),
            _WAY,
            _NO_BOX,
        ),
    ),
    "secret": CliCommand(
        "set_up.secrets_and_mirrors", "Push", "put a key or token on a box, readable only by you",
        (
            (OK, "stored; or listed, or removed"),
            (FAILED,
             "refused: others could read it there (another path is suggested); or there is none"),
            _WAY,
            _NO_BOX,
        ),
    ),
    "push": CliCommand(
        "set_up.push_to_box", "Push", "push code or data to a box, or the resumable trainer",
        (
            (OK, "pushed and complete; with --list and --prune: listed, or removed"),
            (FAILED,
             ("not enough space, or files refused (each is listed); --trainer: no Python on the "
              "box has torch")),
            _WAY,
            (UNREACHABLE,
             "the box could not be reached, or the connection was lost; the next rgt push resumes"),
        ),
    ),
}  # fmt: skip
"""Keyed by name; within a group in the order of ``rgt --help``."""


def list_statuses(command: str) -> tuple[Meaning, ...]:
    """Return the exit statuses of a command, or of ``rgt`` itself.

    Ctrl-C elsewhere exits with 130.
    """
    if command == "rgt":
        return DASHBOARD
    return COMMANDS[command].statuses


def build_epilog(command: str, *examples: str) -> str:
    """Return the end of a command's ``--help``: its examples and its exit statuses."""
    lines = [
        translate("examples:") if len(examples) > 1 else translate("example:"),
        *(f"  {_translate_note(example)}" for example in examples),
    ]
    lines += [
        "",
        translate("exit status:"),
        *(f"  {code}  {translate(text)}" for code, text in list_statuses(command)),
    ]
    return "\n".join(lines)


def _translate_note(example: str) -> str:
    """Return an example whose note, which three blanks separate, is in the person's language."""
    command, gap, note = example.partition("   ")
    if gap:
        note = translate(note)
    return f"{command}{gap}{note}"


def format_overview() -> str:
    """Return all commands by their groups, as ``rgt --help`` shows them."""
    lines = []
    for group in GROUPS:
        rows = [
            f"  {name:<12} {translate(command.brief)}"
            for name, command in COMMANDS.items()
            if command.group == group
        ]
        # A group without commands has no heading.
        lines += [f"{translate(group)}:", *rows, ""] if rows else []
    return "\n".join(lines)


def find_runner(name: str) -> Callable[[Any], int]:
    """Return the function that runs a command and returns its exit status."""
    # By name instead of a column in the table, which would import each command's module.
    runs: Callable[[Any], int] = getattr(
        import_module(module_name(name)), f"run_{name.replace('-', '_')}"
    )
    return runs


def module_name(name: str) -> str:
    """Return the full name of a command's module."""
    return f"rgt_tui.cli.{COMMANDS[name].module}"
