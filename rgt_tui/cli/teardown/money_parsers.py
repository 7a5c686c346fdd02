"""Parsers of the commands about results and money: options, help and examples."""

from __future__ import annotations

import argparse
import contextlib
from datetime import date

from rgt_tui.cli.arguments import (
    box_argument,
    box_names,
    byte_count,
    command,
    connection_options,
    count,
    currency,
    duration,
    fleet_option,
    gpu_wish,
    host_key_option,
    json_option,
    price,
    provider_kinds,
    readonly_option,
    timeout_option,
    words_list,
)
from rgt_tui.cli.autostop.autostop_parsers import add_autostop, add_keep, add_lease, add_notify
from rgt_tui.cli.commands import Subparsers
from rgt_tui.cli.set_up.set_up_parsers import profiles

__all__ = [
    "add_audit",
    "add_autostop",
    "add_bid",
    "add_check_box",
    "add_down",
    "add_keep",
    "add_lease",
    "add_notify",
    "add_profiles",
    "add_up",
]


def add_down(subparsers: Subparsers) -> None:
    """Declare ``rgt down``."""
    parser = command(
        subparsers,
        "down",
        about="Stop the meter of one box. The box and its provider are asked again; every reason against it is\n"
        "printed at once; nothing is sent until you have typed the phrase that it asks for. In a script, read\n"
        "what --dry-run --json prints and confirm exactly that: the digest is valid for 60 s, as long as no fact\n"
        "changes.",
        examples=(
            "rgt down lab --park",
            "rgt down lab --destroy --dry-run --json",
            "rgt down lab --destroy --confirm lab --evidence 3f9a…",
            "rgt down lab --destroy --forfeit 'results:/root/scratch'",
            "rgt down lab --done",
        ),
    )
    box_argument(parser)
    verbs = parser.add_mutually_exclusive_group()
    verbs.add_argument(
        "--park",
        dest="verb",
        action="store_const",
        const="park",
        help="stop it so that it can be started again; its disks stay, and may keep billing",
    )
    verbs.add_argument(
        "--destroy",
        dest="verb",
        action="store_const",
        const="destroy",
        help="end it for good, with its disks",
    )
    verbs.add_argument(
        "--done",
        action="store_true",
        help="for a box without a provider: you have clicked it on the console, and it shows that it is done; "
        "refused while the box still answers",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="gather the evidence and print it; send nothing"
    )
    parser.add_argument("--confirm", metavar="PHRASE", help="what a person would type, for a script")
    parser.add_argument("--evidence", metavar="DIGEST", help="the digest of the dry run that is confirmed")
    parser.add_argument(
        "--forfeit",
        action="append",
        default=[],
        metavar="KEY",
        help="give up by name what an item of the evidence protects (repeatable; the phrase becomes longer)",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="KEY",
        help="say by name that files that nobody owns are no result (repeatable)",
    )
    parser.add_argument(
        "--unprotect", default="", metavar="PHRASE", help="for a box that the fleet file calls protected"
    )
    readonly_option(parser)
    fleet_option(parser)
    host_key_option(parser)
    timeout_option(parser, 60.0)
    json_option(parser, "print one JSON object")


def add_up(subparsers: Subparsers) -> None:
    """Declare ``rgt up``."""
    parser = command(
        subparsers,
        "up",
        about="Ask the markets of your accounts for a machine, show what fits with its full price, and rent the one\n"
        "that you confirm by typing the box's name. One call goes out and is never repeated: if its answer is\n"
        "lost, the machine is looked for by a random token in its name. Then wait for SSH, read back what was\n"
        "agreed, and add the box to the fleet file. Called again for a name whose renting was interrupted, it\n"
        "continues that.",
        examples=(
            "rgt up train-a --gpu A100 --max-price 2",
            "rgt up mill --gpu 'RTX 4090:2' --spot --disk 200 --on vastai",
            "rgt up train-a --gpu H100 --dry-run --json",
            "rgt up train-a --gpu H100 --confirm train-a --evidence 3f9a…",
        ),
    )
    parser.add_argument("name", metavar="NAME", help="what the fleet file will call the box")
    parser.add_argument(
        "--gpu",
        type=gpu_wish,
        metavar="GPU[:N]",
        help="model, memory or both (A100, A100:80GB, 24GB+), and how many (default 1)",
    )
    parser.add_argument(
        "--max-price", type=price, metavar="P", help="the most per hour, compute and disk together"
    )
    parser.add_argument(
        "--currency", type=currency, default="USD", metavar="C", help="currency of --max-price (default USD)"
    )
    parser.add_argument(
        "--spot",
        action="store_true",
        help="may be taken away at any time, for a lower price; on-demand otherwise",
    )
    parser.add_argument(
        "--disk", type=count, default=100, metavar="GB", help="disk for data and checkpoints (default 100)"
    )
    on = parser.add_argument(
        "--on",
        type=words_list,
        metavar="PROVIDER[,…]",
        help="only these (default: those of the fleet file, else all)",
    )
    on.completer = lambda **_: provider_kinds()  # type: ignore[attr-defined]
    parser.add_argument("--region", metavar="R", help="the platform's own word for it (default: anywhere)")
    parser.add_argument("--image", metavar="I", help="container image, or the platform's own name of one")
    parser.add_argument(
        "--key", metavar="FILE", help="public key that the machine lets in (default: yours in ~/.ssh)"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the offers and the price; rent nothing")
    parser.add_argument("--confirm", metavar="PHRASE", help="what a person would type, for a script")
    parser.add_argument("--evidence", metavar="DIGEST", help="the digest of the dry run that is confirmed")
    parser.add_argument(
        "--written-off",
        metavar="TOKEN",
        help="you have looked at the console: the creation with this token made nothing",
    )
    parser.add_argument(
        "--find", type=duration, metavar="TIME",
        help="when it continues an earlier one: look for its machine for this long (default: until 10 minutes after it "
        "was sent, at least 30 s)",
    )  # fmt: skip
    parser.add_argument(
        "--no-check", dest="check", action="store_false",
        help="do not try the machine (GPUs, CUDA, disk) once it answers",
    )  # fmt: skip
    readonly_option(parser)
    fleet_option(parser)
    host_key_option(parser)
    parser.add_argument(
        "--timeout", type=duration, default=600.0, metavar="TIME",
        help="wait at most this long for the machine's SSH (default 10m)",
    )  # fmt: skip
    json_option(parser, "print one JSON object")


def add_bid(subparsers: Subparsers) -> None:
    """Declare ``rgt bid``."""
    parser = command(
        subparsers,
        "bid",
        about="Change what is bid for a spot machine at Vast.ai: shows what the bid is now, the least that keeps the\n"
        "machine, and what the new one costs at most a day, and asks for the box's name. A bid below the least gives\n"
        "the machine away at once; a higher one gets back a machine that was outbid.",
        examples=("rgt bid mill 0.45", "rgt bid mill 0.45 --dry-run --json"),
    )
    parser.add_argument("box", metavar="BOX", help="a box of the fleet file")
    parser.add_argument(
        "price", type=price, metavar="PRICE", help="the new bid, an hour of the whole machine"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show the bid and what it costs; change nothing"
    )
    parser.add_argument("--confirm", metavar="PHRASE", help="what a person would type, for a script")
    parser.add_argument("--evidence", metavar="DIGEST", help="the digest of the dry run that is confirmed")
    readonly_option(parser)
    fleet_option(parser)
    json_option(parser, "print one JSON object")


def add_check_box(subparsers: Subparsers) -> None:
    """Declare ``rgt check-box``."""
    parser = command(
        subparsers,
        "check-box",
        about="Try one box for a minute and a half: whether CUDA computes (in the torch that is found there), how\n"
        "fast it multiplies matrices and moves bytes to the GPU, the disk for data, the network to mirrors and\n"
        "registries; against what it was rented as, and against the median of the boxes that were checked before.\n"
        "Nothing of it is left on the box.",
        examples=("rgt check-box train-a", "rgt check-box lab --expect A100:2 --json"),
    )
    box_argument(parser)
    parser.add_argument(
        "--expect",
        type=gpu_wish,
        metavar="GPU[:N]",
        help="the GPUs that it must have (default: what the fleet file says it was rented as)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="leave the network out and write little; it does not count as a measurement for others",
    )
    fleet_option(parser)
    host_key_option(parser)
    timeout_option(parser, 90.0)
    json_option(parser, "print one JSON object: box, ok, exit, rows, measured")


def add_audit(subparsers: Subparsers) -> None:
    """Declare ``rgt audit``."""
    parser = command(
        subparsers,
        "audit",
        about="Print the audit log of billing actions, oldest first, and then what is still open: what was sent\n"
        "without anybody knowing yet whether it was done. Nothing is asked or sent.",
        examples=(
            "rgt audit",
            "rgt audit --box lab --json | jq -r .text",
            "rgt audit --verify",
            "rgt audit --box lab --seen off",
            "rgt audit --receipt lab",
        ),
    )
    box = parser.add_argument("--box", metavar="NAME", help="only what was done to this box")
    box.completer = box_names  # type: ignore[attr-defined]
    parser.add_argument(
        "--verify",
        action="store_true",
        help="only follow the hashes from line to line, and say whether it is complete",
    )
    parser.add_argument(
        "--seen",
        choices=("off", "on"),
        help="write down what you have seen on the console of the --box whose end is unknown, and settle it",
    )
    receipt = parser.add_argument(
        "--receipt",
        metavar="NAME",
        help="print the receipt of this box's last stop or destroy: when, its cost, the copies of its results, what "
        "still bills",
    )
    receipt.completer = box_names  # type: ignore[attr-defined]
    json_option(
        parser, "print one JSON object per line; with --verify: one: ok, lines, begins, broken, reason, torn"
    )
    fleet_option(parser)


def add_profiles(subparsers: Subparsers) -> None:
    """Declare ``rgt profiles``."""
    parser = command(
        subparsers,
        "profiles",
        about="The platforms that rgt knows.\n\n"
        "  list [NAME...]    a line each, with the worst danger\n"
        "  show NAME...      all that is known: what survives what, billing verbs, clocks, traps, sources\n"
        "  check [NAME...]   whether each fact about money or data has a source, and how old it is\n"
        "  clocks [NAME...]  what happens by itself, and how it is watched\n\n"
        "A file NAME.toml of your own in ~/.config/rgt/profiles takes the place of the one of that name.",
        examples=(
            "rgt profiles list",
            "rgt profiles show autodl",
            "rgt profiles check --max-age 12",
            "rgt profiles clocks vastai --json",
        ),
    )
    words = parser.add_argument(
        "words", nargs="*", metavar="list|show|check|clocks|NAME", help="what to do, and with which platforms"
    )
    words.completer = lambda **_: ["list", "show", "check", "clocks", *profiles()]  # type: ignore[attr-defined]
    parser.add_argument(
        "--as-of",
        type=day,
        metavar="DATE",
        help="check: count the age of a fact from this day, such as 2026-11-22",
    )
    parser.add_argument(
        "--max-age",
        type=months,
        metavar="MONTHS",
        help="check: fail for what was not looked at for longer, or was never dated (without it, 6 months warn)",
    )
    json_option(parser, "print one JSON object per platform or clock; with check: one in all")


def day(text: str) -> date:
    """Return the day that a person has typed."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day such as 2026-11-22") from None


def months(text: str) -> int:
    """Return a number of months that a person has typed."""
    if not text.isdecimal() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of months")
    return int(text)


def add_pull(subparsers: Subparsers) -> None:
    """Declare ``rgt pull``."""
    parser = command(
        subparsers,
        "pull",
        about="Copy the results of a box here, and verify every byte: each file is hashed on both sides, written to\n"
        "disk, and only then takes its name. Stop it at any point: the next pull continues. What is verified here\n"
        "is never replaced by something that may be worse; links, odd names and files that change are named.\n"
        "Nothing on the box is changed.",
        examples=(
            "rgt pull lab",
            "rgt pull lab /workspace/runs '~/exp/*/checkpoints' --dest ~/results",
            "rgt pull lab --dry-run",
            "rgt pull lab --limit 20M --streams 2",
        ),
    )
    box_argument(parser)
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", help="on the box; globs allowed (default: its results)"
    )
    parser.add_argument("--dest", metavar="DIR", help="where to (default: ./pulled/BOX)")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be pulled")
    parser.add_argument(
        "--limit", metavar="RATE", type=byte_rate, help="at most so many bytes per second: 500K, 20M, 1G"
    )
    parser.add_argument(
        "--unclaimed", metavar="SIZE", type=byte_count,
        help="without PATH: end with 1 if files that no job, run or `results` claims are larger (default 1M)",
    )  # fmt: skip
    parser.add_argument(
        "--streams", metavar="N", type=stream_count, default=4, help="side by side (default 4, at most 16)"
    )
    connection_options(
        parser, json='print JSON lines: the progress, and at the end one with "end": true', seconds=120.0
    )


def byte_rate(text: str) -> float:
    """Parse a number of bytes per second such as ``500K`` or ``20M``.

    Raises:
        argparse.ArgumentTypeError: it is none.
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
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or not 1 <= int(text[:3]) <= 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of streams between 1 and 16")
    return int(text)


def add_verify(subparsers: Subparsers) -> None:
    """Declare ``rgt verify``."""
    parser = command(
        subparsers,
        "verify",
        about="Look at every file below a directory of results: hash it, compare it with what the pull, a manifest or\n"
        "the last verification knew of it, and prove that every checkpoint in it is complete and loads. Nothing\n"
        "in a file is ever run. PULL_VERIFIED.json in the directory says what was found.",
        examples=("rgt verify pulled/lab", "rgt verify pulled/lab --expect 12 --json"),
    )
    parser.add_argument("directory", metavar="DIR", help="the directory")
    parser.add_argument(
        "--expect", metavar="N", type=count, help="how many complete checkpoints there must be, at least"
    )
    parser.add_argument(
        "--renew", action="store_true",
        help="leave out what the last verification found: files were changed or removed on purpose",
    )  # fmt: skip
    parser.add_argument("--no-torch", action="store_true", help="do not load files of torch.save with torch")
    json_option(parser, "print one JSON object: ok, files, bytes, errors (path, reason) and more")
