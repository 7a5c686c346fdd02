"""Arguments of the commands that let a box stop itself: options, help and examples."""

from __future__ import annotations

import argparse

from rgt_tui.cli.arguments import (
    FLEET,
    HOST_KEY,
    READONLY,
    BoxArguments,
    flag,
    flag_choice,
    list_option,
    option,
    parse_duration,
    positional,
    text_option,
    timeout_option,
)


def parse_idle_if(text: str) -> float:
    """Return the seconds of the option, as `parse_idle_condition`.

    Raises:
        argparse.ArgumentTypeError: It is something else.
    """
    from rgt_tui.model import parse_idle_condition  # late: --help needs no model

    try:
        return parse_idle_condition(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


# Destroy is no choice: a box has no call that could destroy anything.
ENDING = flag_choice(
    "park",
    park="stop the machine so that it can be started again (the default)",
    ask="stop nothing: notify you (rgt notify)",
)


class ArmingArguments(BoxArguments):
    """Arguments of the commands that arm a box."""

    dry_run = flag("show what would happen; arm nothing")
    confirm = text_option("NAME", "the box's name, which a person would type, for a script")
    readonly = READONLY
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    # The rehearsal asks box and provider, and a provider may be slow.
    timeout = timeout_option(60.0)
    json = flag("print one JSON object")


class AutostopArguments(ArmingArguments):
    """Arguments of ``rgt autostop``."""

    about = """
    Arm one box to park itself when it has been idle for TIME: no GPU or CPU work of a run, no terminal input,
    no result written. The box counts, decides and stops itself with its platform's key, even while this
    computer sleeps. It never destroys, and a reboot or a resume disarms it. You see what it would keep and
    lose, then you type the box's name.
    """
    examples = (
        "rgt autostop lab --idle 45m",
        "rgt autostop lab --idle 45m --dry-run --json",
        "rgt autostop lab --idle 1h30 --accept 4321 --confirm lab",
        "rgt autostop lab --idle 45m --idle-if no-progress=2h",
        "rgt autostop lab --status",
        "rgt autostop lab --disarm",
    )
    one_of = ("idle status disarm", "action")
    # A bare `rgt autostop BOX` could mean arming as well as asking, so it means neither.
    one_is_required = True
    idle = option(
        "TIME", parse_duration, "arm it: stop after this time without work: 45m, 8h, 1h30"
    )
    status = flag("show whether it is armed, the time counted so far, and what it did before")
    disarm = flag("disarm it: it no longer stops itself")
    action: str = ENDING
    # 0 is falsy, so the check in `run_autostop` that --idle is given treats it as absent.
    inspect = option(
        "TIME",
        parse_duration,
        "when a cell fails, wait this long for you to look at it (default 0)",
        default=0.0,
    )
    idle_if = option(
        "no-progress[=TIME]",
        parse_idle_if,
        "also count a live run as idle if nothing advanced for TIME (default 1h): no line in its "
        "log but repeated ones, no result, no work on GPU or CPU; a run whose log cannot be read "
        "never counts; without it, as idle_if of the fleet file says; never: no live run counts",
    )
    accept = list_option(
        "PID",
        "idle processes with memory in use that may end with the box, such as a forgotten notebook",
        # Not repeatable but one list: --accept 12 34, as the refusal prints the pids.
        nargs="+",
        action="store",
    )


class LeaseArguments(ArmingArguments):
    """Arguments of ``rgt lease``."""

    about = """
    Give one box a hard deadline. The box enforces it, even while something runs: it warns, sends SIGTERM so
    that runs save, copies files that would be lost to durable storage, and parks. A run that is not known to
    save is stopped only if you --accept it by name; otherwise the box notifies you instead.
    """
    examples = ("rgt lease lab 8h", "rgt lease lab 8h --accept old-run --confirm lab")
    one_of = ("action",)
    # No default: a deadline that ends runs must be typed.
    length: float = positional("TIME", "time from now: 8h, 90m, 1h30", type=parse_duration)
    action: str = ENDING
    accept = list_option(
        "RUN",
        "runs that do not save on SIGTERM and may be stopped anyway",
        nargs="+",
        action="store",
    )


class KeepArguments(BoxArguments):
    """Arguments of ``rgt keep``."""

    about = "Postpone the autostop of a box by TIME from now. Its clock then starts again."
    examples = ("rgt keep lab 2h",)
    length: float = positional("TIME", "time from now: 2h, 90m, 1h30", type=parse_duration)
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    json = flag("print one JSON object")


class NotifyArguments(BoxArguments):
    """Arguments of ``rgt notify``."""

    about = """
    Give one box an address to notify, without this computer, when a queue is done, a cell fails, a disk is
    full, or the box is about to stop itself. The address is read from standard input, so it is on no command
    line; on the box it is in a file that only you can read. ntfy, Slack, Discord, Feishu, DingTalk, WeCom and
    a plain webhook are recognised by their host.
    """
    examples = (
        "rgt notify lab < address.txt",
        "rgt notify lab --test",
        "rgt notify lab --remove",
    )
    # --token changes how standard input is read, and the others read none.
    one_of = ("what token",)
    what: str | None = flag_choice(
        test="have the box send one message now",
        status="show which host it notifies, if any",
        remove="have the box forget the address",
    )
    token = flag("the second line is a token, sent as a bearer token")
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    json = flag("print one JSON object")
