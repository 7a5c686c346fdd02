"""The parsers of the commands that bring results off a box and prove that they are whole."""

from __future__ import annotations

from rgt_tui.cli.arguments import command, count, json_option
from rgt_tui.cli.commands import Subparsers


def add_verify(subparsers: Subparsers) -> None:
    """Declare ``rgt verify``."""
    parser = command(
        subparsers,
        "verify",
        about="Look at every file below a directory of results: hash it, compare it with what the pull, a manifest or\n"
        "the last verification knew of it, and prove that every checkpoint in it is whole and loads. Nothing\n"
        "in a file is ever run. PULL_VERIFIED.json in the directory says what was found.",
        examples=("rgt verify pulled/lab", "rgt verify pulled/lab --expect 12 --json"),
    )
    parser.add_argument("directory", metavar="DIR", help="the directory")
    parser.add_argument(
        "--expect", metavar="N", type=count, help="how many whole checkpoints there must be, at least"
    )
    parser.add_argument(
        "--renew", action="store_true",
        help="go without what the last verification found: files were changed or removed on purpose",
    )  # fmt: skip
    parser.add_argument("--no-torch", action="store_true", help="do not load files of torch.save with torch")
    json_option(parser, "print one JSON object: ok, files, bytes, errors (path, reason) and more")
