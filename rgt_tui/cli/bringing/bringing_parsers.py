"""Parsers of the commands that bring something to a box: options, help and examples."""

from __future__ import annotations

from rgt_tui.cli.arguments import (
    box_argument,
    command,
    connection_options,
    words_list,
)
from rgt_tui.cli.commands import Subparsers


def add_push(subparsers: Subparsers) -> None:
    """Declare ``rgt push``."""
    parser = command(
        subparsers,
        "push",
        about="Push code to a directory of its own, named by its hash, and point a link at it: a run in progress\n"
        "keeps the files that it was started with. With --data: put data where the platform keeps it, file by\n"
        "file, each checked by its hash; what a process has open is not replaced. An interrupted push continues\n"
        "where it stopped. Left out of code: .git, caches, .venv, node_modules, wandb, checkpoints, and what\n"
        ".gitignore and .rgtignore name. Keys and tokens are left out and named. With --trainer: put rgt_train\n"
        "there as one file.",
        examples=(
            "rgt push lab .",
            "rgt push lab ~/exp --exclude 'data/' --fix-crlf",
            "rgt push lab ./imagenet --data",
            "rgt push lab --list",
            "rgt push lab --prune --dry-run",
            "rgt push --trainer lab --json | jq -r .launch",
        ),
    )
    box_argument(parser)
    parser.add_argument("paths", metavar="PATH", nargs="*", help="directory or file here")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--data", action="store_true", help="it is data: it goes to the platform's data directory"
    )
    what.add_argument("--trainer", action="store_true", help="put rgt_train there")
    what.add_argument(
        "--list", action="store_true", help="list the versions of code there, and who uses them"
    )
    what.add_argument("--prune", action="store_true", help="remove versions that nothing is known to use")
    parser.add_argument("--to", metavar="DIR", help="another directory on the box (absolute)")
    parser.add_argument("--name", metavar="NAME", help="another name there")
    parser.add_argument(
        "--exclude",
        metavar="GLOB",
        action="append",
        default=[],
        help="leave out, as in .gitignore; may be repeated",
    )
    parser.add_argument(
        "--include-secrets", action="store_true", help="push what looks like a key or a token, too"
    )
    parser.add_argument(
        "--fix-crlf",
        action="store_true",
        help="give scripts and queue files the line ends of Unix on the box",
    )
    parser.add_argument(
        "--replace-newer",
        action="store_true",
        help="with --data: replace files that are newer on the box, too",
    )
    parser.add_argument(
        "--shared",
        action="store_true",
        help="with --prune: nobody on another machine is running what is there",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be pushed, or removed")
    parser.add_argument("--yes", action="store_true", help="with --prune: do not ask")
    connection_options(parser, json="print one JSON object for each PATH", seconds=60.0)


def add_mirrors(subparsers: Subparsers) -> None:
    """Declare ``rgt mirrors``."""
    parser = command(
        subparsers,
        "mirrors",
        about="Show which mirrors (Hugging Face, pip, conda) and what proxy the platform of a box has, and whether\n"
        "they are on there. Cells of jobs get them anyway, as the platform's profile says; --on sets them for\n"
        "login shells, too, by one marked block that --off removes without a trace. Nothing is set where no fact\n"
        "is known.",
        examples=("rgt mirrors lab", "rgt mirrors lab --on", "rgt mirrors lab --off --for proxy"),
    )
    box_argument(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--on", action="store_true", help="for jobs and login shells")
    what.add_argument("--off", action="store_true", help="likewise")
    what.add_argument("--show", action="store_true", help="only show (the default)")
    parser.add_argument(
        "--for", dest="kinds", type=words_list, metavar="KIND[,…]", help="only these: hf, pip, conda, proxy"
    )
    connection_options(parser, json="print one JSON object: facts, jobs, login, problems")


def add_secret(subparsers: Subparsers) -> None:
    """Declare ``rgt secret``."""
    parser = command(
        subparsers,
        "secret",
        about="Put a key or token on a box: typed without an echo, or read from standard input; never on a command\n"
        "line. It is kept in a file that you alone can read, on storage of that machine alone: a network file\n"
        "system or storage that outlives the box is refused, and another place is named. With --job, the cells of\n"
        "that job get it as a variable, with --all-cells those of every job. --list shows what is kept, and keys in\n"
        "the usual places; no value is ever printed.",
        examples=(
            "rgt secret lab HF_TOKEN",
            "pass wandb | rgt secret lab WANDB_API_KEY --job sweep",
            "pass hf | rgt secret lab HF_TOKEN --all-cells",
            "rgt secret lab --list",
            "rgt secret lab HF_TOKEN --remove",
        ),
    )
    box_argument(parser)
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the variable")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--job", metavar="J", help="a variable of the cells of this job: its name, or directory"
    )
    whose.add_argument("--all-cells", action="store_true", help="a variable of the cells of every job there")
    parser.add_argument("--to", metavar="DIR", help="another directory on the box")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list what is kept there, and keys that lie open")
    what.add_argument("--remove", action="store_true", help="remove it")
    connection_options(parser, json="print one JSON object: put, removed, secrets, found, refused")
