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
    choose,
    count,
    currency,
    duration,
    flag,
    gpu_wish,
    list_option,
    option,
    positional,
    price,
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
from rgt_tui.cli.set_up.set_up_arguments import profiles

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


def day(text: str) -> date:
    """Parse a date."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day such as 2026-11-22") from None


def months(text: str) -> int:
    """Parse a number of months."""
    if not text.isdecimal() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of months")
    return int(text)


def byte_rate(text: str) -> float:
    """Parse a number of bytes per second such as ``500K`` or ``20M``.

    Raises:
        argparse.ArgumentTypeError: It is not a rate.
    """
    found = 0
    with contextlib.suppress(argparse.ArgumentTypeError):
        found = byte_count(text)
    if not 1 <= found < 1e15:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 500K, 20M or 1G")
    return found


def stream_count(text: str) -> int:
    """Parse a number of streams.

    Raises:
        argparse.ArgumentTypeError: It is not a number from 1 to 16.
    """
    if not text.isdecimal() or not 1 <= int(text[:3]) <= 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of streams between 1 and 16")
    return int(text)


class DownArguments(BoxArguments):
    """Arguments of ``rgt down``."""

    about = """
    Stop the meter of one box. The box and its provider are asked again; every reason against it is
    printed at once; nothing is sent until you have typed the phrase that it asks for. In a script, read
    what --dry-run --json prints and confirm exactly that: the digest is valid for 60 s, as long as no fact
    changes.
    """
    examples = (
        "rgt down lab --park",
        "rgt down lab --destroy --dry-run --json",
        "rgt down lab --destroy --confirm lab --evidence 3f9a…",
        "rgt down lab --destroy --forfeit 'results:/root/scratch'",
        "rgt down lab --done",
    )
    one_of = ("verb done",)
    verb: str | None = choose(
        park="stop it so that it can be started again; its disks stay, and may keep billing",
        destroy="end it for good, with its disks",
    )
    done = flag(
        "for a box without a provider: you have clicked it on the console, and it shows that it is done; "
        "refused while the box still answers"
    )
    dry_run = flag("gather the evidence and print it; send nothing")
    confirm = text_option("PHRASE", "what a person would type, for a script")
    evidence = text_option("DIGEST", "the digest of the dry run that is confirmed")
    forfeit = list_option(
        "KEY",
        "give up by name what an item of the evidence protects (repeatable; the phrase becomes longer)",
    )
    ignore = list_option(
        "KEY", "say by name that files that nobody owns are no result (repeatable)"
    )
    unprotect = option("PHRASE", str, "for a box that the fleet file calls protected", default="")
    readonly = READONLY
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    timeout = timeout_option(60.0)
    json = flag("print one JSON object")


class UpArguments(ConnectedArguments):
    """Arguments of ``rgt up``."""

    about = """
    Ask the markets of your accounts for a machine, show what fits with its full price, and rent the one
    that you confirm by typing the box's name. One call goes out and is never repeated: if its answer is
    lost, the machine is looked for by a random token in its name. Then wait for SSH, read back what was
    agreed, and add the box to the fleet file. Called again for a name whose renting was interrupted, it
    continues that.
    """
    examples = (
        "rgt up train-a --gpu A100 --max-price 2",
        "rgt up mill --gpu 'RTX 4090:2' --spot --disk 200 --on vastai",
        "rgt up train-a --gpu H100 --dry-run --json",
        "rgt up train-a --gpu H100 --confirm train-a --evidence 3f9a…",
    )
    name: str = positional("NAME", "what the fleet file will call the box")
    gpu = option(
        "GPU[:N]",
        gpu_wish,
        "model, memory or both (A100, A100:80GB, 24GB+), and how many (default 1)",
    )
    max_price = option("P", price, "the most per hour, compute and disk together")
    currency = option("C", currency, "currency of --max-price (default USD)", default="USD")
    spot = flag("may be taken away at any time, for a lower price; on-demand otherwise")
    disk = option("GB", count, "disk for data and checkpoints (default 100)", default=100)
    on = option(
        "PROVIDER[,…]",
        words_list,
        "only these (default: those of the fleet file, else all)",
        complete=provider_kinds,
    )
    region = text_option("R", "the platform's own word for it (default: anywhere)")
    image = text_option("I", "container image, or the platform's own name of one")
    key = text_option("FILE", "public key that the machine lets in (default: yours in ~/.ssh)")
    dry_run = flag("show the offers and the price; rent nothing")
    confirm = text_option("PHRASE", "what a person would type, for a script")
    evidence = text_option("DIGEST", "the digest of the dry run that is confirmed")
    written_off = text_option(
        "TOKEN", "you have looked at the console: the creation with this token made nothing"
    )
    find = option(
        "TIME",
        duration,
        "when it continues an earlier one: look for its machine for this long (default: until 10 minutes after it "
        "was sent, at least 30 s)",
    )
    check = flag(
        "do not try the machine (GPUs, CUDA, disk) once it answers", "--no-check", initial=True
    )
    readonly = READONLY
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    timeout = option(
        "TIME",
        duration,
        "wait at most this long for the machine's SSH (default 10m)",
        default=600.0,
    )
    json = flag("print one JSON object")


class BidArguments(FleetArguments):
    """Arguments of ``rgt bid``."""

    about = """
    Change what is bid for a spot machine at Vast.ai: shows what the bid is now, the least that keeps the
    machine, and what the new one costs at most a day, and asks for the box's name. A bid below the least gives
    the machine away at once; a higher one gets back a machine that was outbid.
    """
    examples = ("rgt bid mill 0.45", "rgt bid mill 0.45 --dry-run --json")
    box: str = positional("BOX", "a box of the fleet file")
    price: float = positional("PRICE", "the new bid, an hour of the whole machine", type=price)
    dry_run = flag("show the bid and what it costs; change nothing")
    confirm = text_option("PHRASE", "what a person would type, for a script")
    evidence = text_option("DIGEST", "the digest of the dry run that is confirmed")
    readonly = READONLY
    fleet = FLEET
    json = flag("print one JSON object")


class CheckBoxArguments(BoxArguments):
    """Arguments of ``rgt check-box``."""

    about = """
    Try one box for a minute and a half: whether CUDA computes (in the torch that is found there), how
    fast it multiplies matrices and moves bytes to the GPU, the disk for data, the network to mirrors and
    registries; against what it was rented as, and against the median of the boxes that were checked before.
    Nothing of it is left on the box.
    """
    examples = ("rgt check-box train-a", "rgt check-box lab --expect A100:2 --json")
    expect = option(
        "GPU[:N]",
        gpu_wish,
        "the GPUs that it must have (default: what the fleet file says it was rented as)",
    )
    quick = flag(
        "leave the network out and write little; it does not count as a measurement for others"
    )
    fleet = FLEET
    accept_new_host_key = HOST_KEY
    timeout = timeout_option(90.0)
    json = flag("print one JSON object: box, ok, exit, rows, measured")


class AuditArguments(FleetArguments):
    """Arguments of ``rgt audit``."""

    about = """
    Print the audit log of billing actions, oldest first, and then what is still open: what was sent
    without anybody knowing yet whether it was done. Nothing is asked or sent.
    """
    examples = (
        "rgt audit",
        "rgt audit --box lab --json | jq -r .text",
        "rgt audit --verify",
        "rgt audit --box lab --seen off",
        "rgt audit --receipt lab",
    )
    box = text_option("NAME", "only what was done to this box", complete=box_names)
    verify = flag("only follow the hashes from line to line, and say whether it is complete")
    seen = text_option(
        None,
        "write down what you have seen on the console of the --box whose end is unknown, and settle it",
        choices=("off", "on"),
    )
    receipt = text_option(
        "NAME",
        "print the receipt of this box's last stop or destroy: when, its cost, the copies of its results, what "
        "still bills",
        complete=box_names,
    )
    json = flag(
        "print one JSON object per line; with --verify: one: ok, lines, begins, broken, reason, torn"
    )


class ProfilesArguments(Arguments):
    """Arguments of ``rgt profiles``."""

    about = """
    The platforms that rgt knows.

      list [NAME...]    a line each, with the worst danger
      show NAME...      all that is known: what survives what, billing verbs, clocks, traps, sources
      check [NAME...]   whether each fact about money or data has a source, and how old it is
      clocks [NAME...]  what happens by itself, and how it is watched

    A file NAME.toml of your own in ~/.config/rgt/profiles takes the place of the one of that name.
    """
    examples = (
        "rgt profiles list",
        "rgt profiles show autodl",
        "rgt profiles check --max-age 12",
        "rgt profiles clocks vastai --json",
    )
    words: list[str] = positional(
        "list|show|check|clocks|NAME",
        "what to do, and with which platforms",
        nargs="*",
        complete=lambda **_: ["list", "show", "check", "clocks", *profiles()],
    )
    as_of = option("DATE", day, "check: count the age of a fact from this day, such as 2026-11-22")
    max_age = option(
        "MONTHS",
        months,
        "check: fail for what was not looked at for longer, or was never dated (without it, 6 months warn)",
    )
    json = flag("print one JSON object per platform or clock; with check: one in all")


class PullArguments(BoxArguments):
    """Arguments of ``rgt pull``."""

    about = """
    Copy the results of a box here, and verify every byte: each file is hashed on both sides, written to
    disk, and only then takes its name. Stop it at any point: the next pull continues. What is verified here
    is never replaced by something that may be worse; links, odd names and files that change are named.
    Nothing on the box is changed.
    """
    examples = (
        "rgt pull lab",
        "rgt pull lab /workspace/runs '~/exp/*/checkpoints' --dest ~/results",
        "rgt pull lab --dry-run",
        "rgt pull lab --limit 20M --streams 2",
    )
    paths: list[str] = positional(
        "PATH", "on the box; globs allowed (default: its results)", nargs="*"
    )
    dest = text_option("DIR", "where to (default: ./pulled/BOX)")
    dry_run = flag("only say what would be pulled")
    limit = option("RATE", byte_rate, "at most so many bytes per second: 500K, 20M, 1G")
    unclaimed = option(
        "SIZE",
        byte_count,
        "without PATH: end with 1 if files that no job, run or `results` claims are larger (default 1M)",
    )
    streams = option("N", stream_count, "side by side (default 4, at most 16)", default=4)
    fleet = FLEET
    json = flag('print JSON lines: the progress, and at the end one with "end": true')
    timeout = timeout_option(120.0)


class VerifyArguments(Arguments):
    """Arguments of ``rgt verify``."""

    about = """
    Look at every file below a directory of results: hash it, compare it with what the pull, a manifest or
    the last verification knew of it, and prove that every checkpoint in it is complete and loads. Nothing
    in a file is ever run. PULL_VERIFIED.json in the directory says what was found.
    """
    examples = ("rgt verify pulled/lab", "rgt verify pulled/lab --expect 12 --json")
    directory: str = positional("DIR", "the directory")
    expect = option("N", count, "how many complete checkpoints there must be, at least")
    renew = flag(
        "leave out what the last verification found: files were changed or removed on purpose"
    )
    no_torch = flag("do not load files of torch.save with torch")
    json = flag("print one JSON object: ok, files, bytes, errors (path, reason) and more")
