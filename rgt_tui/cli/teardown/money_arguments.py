"""Arguments of the commands about results and money: options, help and examples."""

from __future__ import annotations

import argparse
import contextlib
from datetime import date

from rgt_tui.cli.arguments import (
    FLEET,
    HOST_KEY,
    READONLY,
    Arguments,
    BoxArguments,
    ConnectedArguments,
    FleetArguments,
    box_names,
    byte_count,
    flag,
    flag_choice,
    gpu_wish,
    list_option,
    option,
    parse_count,
    parse_currency,
    parse_duration,
    parse_price,
    positional,
    provider_kinds,
    text_option,
    timeout_option,
    words_list,
)
from rgt_tui.cli.autostop.autostop_arguments import (
    AutostopArguments,
    KeepArguments,
    LeaseArguments,
    NotifyArguments,
)
from rgt_tui.cli.set_up.set_up_arguments import complete_profiles
from rgt_tui.language import translate

__all__ = [
    "AuditArguments",
    "AutostopArguments",
    "BidArguments",
    "CheckBoxArguments",
    "DownArguments",
    "KeepArguments",
    "LeaseArguments",
    "NotifyArguments",
    "ProfilesArguments",
    "UpArguments",
]


def parse_day(text: str) -> date:
    """Parse a date."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            translate("{words!r} is not a day such as 2026-11-22", words=text)
        ) from None


def parse_months(text: str) -> int:
    """Parse a number of months."""
    if not text.isdecimal() or len(text) > 4:
        raise argparse.ArgumentTypeError(
            translate("{words!r} is not a number of months", words=text)
        )
    return int(text)


def byte_rate(text: str) -> float:
    """Parse a number of bytes per second such as ``500K`` or ``20M``.

    Raises:
        argparse.ArgumentTypeError: It is not a rate.
    """
    # Errors are converted, because the message of a size names other examples.
    found = 0
    with contextlib.suppress(argparse.ArgumentTypeError):
        found = byte_count(text)
    if not 1 <= found < 1e15:
        raise argparse.ArgumentTypeError(
            translate("{words!r} is not a rate such as 500K, 20M or 1G", words=text)
        )
    return found


class DownArguments(BoxArguments):
    """Arguments of ``rgt down``."""

    # The 60 s are those of a permit in rgt_tui.gate.
    about = """
    Stop one box and its billing. rgt checks the box and its provider again and prints every reason against
    it; nothing is sent until you type the phrase shown. In a script, read the output of --dry-run --json and
    confirm its digest, which is valid for 60 s if no fact changes.
    """
    examples = (
        "rgt down lab --park",
        "rgt down lab --destroy --dry-run --json",
        "rgt down lab --destroy --confirm lab --evidence 3f9a…",
        "rgt down lab --destroy --forfeit 'results:/root/scratch'",
        "rgt down lab --done",
    )
    one_of = ("verb done",)
    # No default: destroy loses the disks, park does not.
    verb: str | None = flag_choice(
        park="stop it so that it can be started again; its disks stay, and may keep billing",
        destroy="delete it with its disks; this cannot be undone",
    )
    done = flag(
        "for a box without a provider: you have clicked it on the console, and the console shows "
        "it done; refused while the box still answers"
    )
    dry_run = flag("collect and print the evidence; send nothing")
    confirm = text_option("PHRASE", "the phrase that a person types, for a script")
    evidence = text_option("DIGEST", "the digest printed by the dry run")
    forfeit = list_option(
        "KEY",
        "give up what an item of the evidence protects (repeatable; the phrase becomes longer)",
    )
    ignore = list_option("KEY", "these unclaimed files are not results (repeatable)")
    # "" instead of None, because the gate compares it with a phrase.
    unprotect = option(
        "PHRASE", str, "also allow it for a box marked protected in the fleet file", default=""
    )
    readonly = READONLY
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    # Longer than for a status: the box lists its results at a low priority.
    timeout = timeout_option(60.0)
    json = flag("print one JSON object")


class UpArguments(ConnectedArguments):
    """Arguments of ``rgt up``."""

    about = """
    Search the providers of your accounts for a machine, show matching offers with their full price, and rent
    the one that you confirm by typing the box's name. One request is sent and never repeated: if its answer
    is lost, rgt finds the machine by a random token in its name. Then rgt waits for SSH, compares the machine
    with the offer, and adds the box to the fleet file. Run it again with the same name to continue an
    interrupted rental.
    """
    examples = (
        "rgt up train-a --gpu A100 --max-price 2",
        "rgt up mill --gpu 'RTX 4090:2' --spot --disk 200 --on vastai",
        "rgt up train-a --gpu H100 --dry-run --json",
        "rgt up --job job.toml --max-price 2",
        "rgt up train-a --gpu H100 --confirm train-a --evidence 3f9a…",
    )
    name: str = positional(
        "NAME", "name of the new box in the fleet file (default: of the job file)", nargs="?"
    )
    job = text_option(
        "FILE", "take GPU, disk and providers from a job file (docs/job.md); options beat it"
    )
    gpu = option(
        "GPU[:N]",
        gpu_wish,
        "model, memory or both (A100, A100:80GB, 24GB+), and how many (default 1)",
    )
    max_price = option("P", parse_price, "highest price per hour, compute and disk together")
    # Prices of several currencies are never converted, so a limit needs one.
    currency = option("C", parse_currency, "currency of --max-price (default USD)", default="USD")
    spot = flag(
        "rent a spot machine: cheaper, but it can be preempted at any time (default: on-demand)"
    )
    # No default here: a job file may supply it, see `wish_of`.
    disk = option("GB", parse_count, "disk for data and checkpoints (default 100)")
    on = option(
        "PROVIDER[,…]",
        words_list,
        "only these providers (default: those in the fleet file, else all)",
        complete=provider_kinds,
    )
    region = text_option("R", "region, as the platform names it (default: any)")
    image = text_option("I", "container image, or the platform's name for one")
    key = text_option("FILE", "public key for the login (default: yours in ~/.ssh)")
    dry_run = flag("show the offers and the price; rent nothing")
    confirm = text_option("PHRASE", "the phrase that a person types, for a script")
    evidence = text_option("DIGEST", "the digest printed by the dry run")
    written_off = text_option(
        "TOKEN", "you have checked the console: the creation with this token made no machine"
    )
    find = option(
        "TIME",
        parse_duration,
        "when continuing: search for the machine this long (default: until 10 minutes after the "
        "request, at least 30 s)",
    )
    # On by default: a card that CUDA cannot use is best noticed while the machine is minutes old.
    check = flag(
        "do not test the machine (GPUs, CUDA, disk) once it answers", "--no-check", initial=True
    )
    readonly = READONLY
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    # Machines with large images take minutes until their sshd runs.
    timeout = option(
        "TIME",
        parse_duration,
        "wait at most this long for the machine's SSH (default 10m)",
        default=600.0,
    )
    json = flag("print one JSON object")


# Without a connection to the box, hence no host key and no --timeout.
class BidArguments(FleetArguments):
    """Arguments of ``rgt bid``."""

    about = """
    Change the bid for a spot machine at Vast.ai. It shows the current bid, the lowest bid that keeps the
    machine and the new maximum cost per day, and asks for the box's name. A bid below the lowest loses the
    machine at once; a higher one gets back a machine that was outbid.
    """
    examples = ("rgt bid mill 0.45", "rgt bid mill 0.45 --dry-run --json")
    # No completion: it would offer all boxes, of which most have no bid.
    box: str = positional("BOX", "a box of the fleet file")
    price: float = positional(
        "PRICE", "the new bid per hour for the whole machine", type=parse_price
    )
    dry_run = flag("show the bid and what it costs; change nothing")
    confirm = text_option("PHRASE", "the phrase that a person types, for a script")
    evidence = text_option("DIGEST", "the digest printed by the dry run")
    readonly = READONLY
    fleet = FLEET
    json = flag("print one JSON object")


class CheckBoxArguments(BoxArguments):
    """Arguments of ``rgt check-box``."""

    about = """
    Test one box for a minute and a half: CUDA (with the torch found there), the speed of matrix
    multiplication and of copies to the GPU, the data disk, the network to mirrors and registries. The results
    are compared with what you rented, and with the median of the boxes checked before. No files are left on
    the box.
    """
    examples = ("rgt check-box train-a", "rgt check-box lab --expect A100:2 --json")
    expect = option(
        "GPU[:N]",
        gpu_wish,
        "the GPUs that it must have (default: as rented, from the fleet file)",
    )
    quick = flag(
        "skip the network test and write little; the result is not used to compare other boxes"
    )
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    # The length of the test itself.
    timeout = timeout_option(90.0)
    json = flag("print one JSON object: box, ok, exit, rows, measured")


class AuditArguments(FleetArguments):
    """Arguments of ``rgt audit``."""

    about = """
    Print the audit log of billing actions, oldest first, and then the open ones: sent, with an outcome that
    is still unknown. It contacts no box and no provider.
    """
    examples = (
        "rgt audit",
        "rgt audit --box lab --json | jq -r .text",
        "rgt audit --verify",
        "rgt audit --box lab --seen off",
    )
    box = text_option("NAME", "only the actions on this box", complete=box_names)
    verify = flag("only check the hash chain, and report whether the log is complete")
    # The last resort for platforms without an API: the person reads the console.
    seen = text_option(
        None,
        "record what the console shows for the --box with an unknown outcome, and close its action",
        choices=("off", "on"),
    )
    json = flag(
        "print one JSON object per line; with --verify: one: ok, lines, begins, broken, reason, "
        "torn"
    )


class ReceiptArguments(FleetArguments):
    """Arguments of ``rgt receipt``."""

    about = """
    Print the receipt of a box's last stop or destroy: when and by whom, how long it was on, cost and idle share,
    each run with its steps, best loss and copy, charges that continue and how to end them. Without a box: a
    line for every receipt. It contacts no box and no provider.
    """
    examples = ("rgt receipt", "rgt receipt lab", "rgt receipt lab --markdown > lab.md")
    box: str | None = positional(
        "BOX", "name of the box (default: list all)", nargs="?", complete=box_names
    )
    markdown = flag("print it as Markdown")
    json = flag("print one JSON object per receipt")


class ProfilesArguments(Arguments):
    """Arguments of ``rgt profiles``."""

    about = """
    The platforms that rgt knows.

      list [NAME...]    a line each, with the worst danger
      show NAME...      everything known: what survives, billing actions, clocks, traps, sources
      check [NAME...]   whether each fact about money or data has a source, and how old it is
      clocks [NAME...]  what happens without you, and how rgt watches it

    A file NAME.toml of your own in ~/.config/rgt/profiles replaces the built-in one of that name.
    """
    examples = (
        "rgt profiles list",
        "rgt profiles show autodl",
        "rgt profiles check --max-age 12",
        "rgt profiles clocks vastai --json",
    )
    words: list[str] = positional(
        "list|show|check|clocks|NAME",
        "the action and the platforms",
        nargs="*",
        complete=lambda **_: ["list", "show", "check", "clocks", *complete_profiles()],
    )
    as_of = option(
        "DATE", parse_day, "check: count the age of a fact from this day, such as 2026-11-22"
    )
    max_age = option(
        "MONTHS",
        parse_months,
        "check: fail for facts that are older or have no date (without it, 6 months warn)",
    )
    json = flag("print one JSON object per platform or clock; with check: one in all")


class PullArguments(BoxArguments):
    """Arguments of ``rgt pull``."""

    about = """
    Copy the results of a box here, and verify every byte: each file is hashed on both sides and gets its name
    only when it is on disk. You can stop at any point: the next pull continues. A verified file here is never
    replaced by one that may be worse. Links, odd names and files that change are listed. Nothing on the box
    is changed.
    """
    examples = (
        "rgt pull lab",
        "rgt pull lab /workspace/runs '~/exp/*/checkpoints' --dest ~/results",
        "rgt pull lab --dry-run",
        "rgt pull lab --limit 20M",
    )
    paths: list[str] = positional(
        "PATH", "on the box, or a run's name; globs allowed (default: its results)", nargs="*"
    )
    dest = text_option("DIR", "directory here (default: ./pulled/BOX)")
    dry_run = flag("only show what would be pulled")
    limit = option("RATE", byte_rate, "limit in bytes per second: 500K, 20M, 1G")
    # The default is `UNCLAIMED_BYTES`: a few shell scripts do not make a copy incomplete.
    unclaimed = option(
        "SIZE",
        byte_count,
        "without PATH: exit with 1 if unclaimed files (of no job, run or `results`) are larger "
        "than this (default 1M)",
    )
    fleet = FLEET
    # Lines instead of one object, because a pull may take hours.
    json = flag('print JSON lines: the progress, and at the end one with "end": true')
    # How long it tries to reach the box, or to reach it again; the copy itself has no limit.
    timeout = timeout_option(120.0)


class VerifyArguments(Arguments):
    """Arguments of ``rgt verify``."""

    about = """
    Check every file below a directory of results: hash it, compare it with the records of the pull, a
    manifest or the last verification, and prove that every checkpoint is complete and loads. No code in a
    file is ever run. PULL_VERIFIED.json in the directory has the result.
    """
    examples = (
        "rgt verify pulled/lab",
        "rgt verify pulled/lab --expect 12 --json",
        "rgt verify pulled/lab --roster sweep.txt",
    )
    directory: str = positional("DIR", "the directory")
    expect = option("N", parse_count, "minimum number of complete checkpoints")
    roster = text_option(
        "QUEUEFILE",
        "every cell of this queue, or of a job file (FILE.toml), has a directory of its name with a"
        " checkpoint that loads",
    )
    renew = flag("ignore the last verification: you changed or removed files on purpose")
    # Loading needs torch and its memory; without it, such files are checked by their structure.
    no_torch = flag("do not load files of torch.save with torch")
    json = flag("print one JSON object: ok, files, bytes, errors (path, reason) and more")
