"""Arguments of the commands that let a box stop itself: options, help and examples."""

from __future__ import annotations

from rgt_tui.cli.arguments import (
    FLEET,
    HOST_KEY,
    READONLY,
    BoxArguments,
    choose,
    duration,
    flag,
    list_option,
    option,
    positional,
    text_option,
    timeout_option,
)

ENDING = choose(
    "park",
    park="stop the machine so that it can be started again (the default)",
    ask="stop nothing: call you (rgt notify)",
)


class ArmingArguments(BoxArguments):
    """Arguments of the commands that arm a box."""

    dry_run = flag("show what arming would mean; arm nothing")
    confirm = text_option("NAME", "the box's name, which a person would type, for a script")
    readonly = READONLY
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    timeout = timeout_option(60.0)
    json = flag("print one JSON object")


class AutostopArguments(ArmingArguments):
    """Arguments of ``rgt autostop``."""

    about = """
    Arm one box to park itself once it has been idle for that long without a break: no GPU or CPU work
    of a run, no input at a terminal, no result written. It counts, decides and stops on its own, with its
    platform's own key, even while this computer sleeps; it never destroys, and a reboot or a resume disarms
    it. What it would find, keep and lose is shown first; then you type the box's name.
    """
    examples = (
        "rgt autostop lab --idle 45m",
        "rgt autostop lab --idle 45m --dry-run --json",
        "rgt autostop lab --idle 1h30 --accept 4321 --confirm lab",
        "rgt autostop lab --status",
        "rgt autostop lab --disarm",
    )
    one_of = ("idle status disarm", "action")
    one_is_required = True
    idle = option("TIME", duration, "arm it: it stops after this long without work: 45m, 8h, 1h30")
    status = flag("show whether it is armed, how far it has counted, and what it did before")
    disarm = flag("disarm it: it no longer stops itself")
    action: str = ENDING
    inspect = option(
        "TIME",
        duration,
        "when a cell fails, wait this long for somebody to look (default 0)",
        default=0.0,
    )
    accept = list_option(
        "PID",
        "idle processes that hold memory, such as a forgotten notebook, and may end with the box",
        nargs="+",
        action="store",
    )


class LeaseArguments(ArmingArguments):
    """Arguments of ``rgt lease``."""

    about = """
    Give one box a hard deadline, which it enforces itself, even while something runs: it warns, sends
    SIGTERM so that runs save, copies what would be lost to storage that stays, and parks. A run that is not
    known to save is ended only if you accept that by its name; otherwise the box calls you instead.
    """
    examples = ("rgt lease lab 8h", "rgt lease lab 8h --accept old-run --confirm lab")
    one_of = ("action",)
    length: float = positional("TIME", "from now on: 8h, 90m, 1h30", type=duration)
    action: str = ENDING
    accept = list_option(
        "RUN",
        "runs that do not save on SIGTERM, and may be ended anyway",
        nargs="+",
        action="store",
    )


class KeepArguments(BoxArguments):
    """Arguments of ``rgt keep``."""

    about = "Put off what a box would do to itself, for that long from now. Its clock then starts again."
    examples = ("rgt keep lab 2h",)
    length: float = positional("TIME", "from now on: 2h, 90m, 1h30", type=duration)
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    json = flag("print one JSON object")


class NotifyArguments(BoxArguments):
    """Arguments of ``rgt notify``."""

    about = """
    Give one box an address that it notifies on its own, without this computer, when a queue is done, a
    cell has failed, a disk is full, or it is about to stop itself. The address is read from standard input
    and appears on no command line; on the box it is kept in a file that only you may read. ntfy, Slack,
    Discord, Feishu, DingTalk, WeCom and a plain webhook are recognised by their host.
    """
    examples = (
        "rgt notify lab < address.txt",
        "rgt notify lab --test",
        "rgt notify lab --remove",
    )
    one_of = ("what token",)
    what: str | None = choose(
        test="have the box send one message now",
        status="say which host it calls, if any",
        remove="have the box forget the address",
    )
    token = flag("a second line is a token, sent as a bearer")
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    json = flag("print one JSON object")
