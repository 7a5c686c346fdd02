"""``rgt add``: a box into the fleet file, from a host name or the ssh command that a rental hands out."""

from __future__ import annotations

import argparse
from pathlib import Path

from rgt_tui.cli.arguments import command, fleet_option, json_option, port
from rgt_tui.cli.commands import USAGE, Subparsers

KEYS = ("profile", "port", "user", "identity", "logs", "jobs", "runs")
"""Options that become keys of the box."""
LOCAL_FILES = ("identity", "ssh_config")


def add_add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "add",
        about="Add a box to the fleet file; what stands there is left as it is, comments included. HOST is a host\n"
        "name, an alias of ssh_config, USER@HOST, or, in quotes, the whole ssh command that a rental hands out.",
        examples=(
            "rgt add lab lab-a100",
            'rgt add vast "ssh -p 40022 root@1.2.3.4 -L 8080:localhost:8080" --profile vastai',
            "rgt add seeta \"ssh -p 12345 root@connect.westb.seetacloud.com\" --log '~/exp/*.log'",
        ),
    )
    parser.add_argument("name", metavar="NAME", help="what to call the box")
    parser.add_argument("target", metavar="HOST", help="a host, or an ssh command in quotes")
    profile = parser.add_argument("--profile", metavar="P", help="platform (default: told by the host name)")
    profile.completer = profiles  # type: ignore[attr-defined]
    parser.add_argument("-p", "--port", type=_port, metavar="N", help="port")
    parser.add_argument("--user", help="who logs in")
    parser.add_argument("-i", "--identity", metavar="FILE", help="private key file")
    parser.add_argument(
        "--log", dest="logs", action="append", metavar="GLOB", help="a log on the box to follow"
    )
    parser.add_argument(
        "--job", dest="jobs", action="append", metavar="DIR", help="a job directory on the box"
    )
    parser.add_argument(
        "--run", dest="runs", action="append", metavar="DIR", help="a run directory on the box"
    )
    json_option(parser, "print one JSON object per box: its keys, and the file")
    fleet_option(parser)


def _port(text: str) -> int:
    return port(text, 1, 65535)


def profiles(**_: object) -> list[str]:
    """Return the ids of all profiles, for a shell."""
    from rgt_tui.profiles import all_profiles

    return list(all_profiles())


def anchored(path: str) -> str:
    """Return the name of a local file so that it means the same from every working directory, as it was typed here."""
    if path == "none" or path.startswith(("/", "~", "%d", "${")):
        return path
    return str(Path(path).absolute())


def run_add(arguments: argparse.Namespace) -> int:
    """Add the box; return the exit code."""
    from rgt_tui.cli.adding import guess_profile, write
    from rgt_tui.cli.pasted import NotSsh, parse_target
    from rgt_tui.cli.printing import complain

    try:
        values = parse_target(arguments.target)
    except NotSsh as error:
        complain(error)
        return USAGE
    values |= {key: getattr(arguments, key) for key in KEYS if getattr(arguments, key) is not None}
    for key in LOCAL_FILES:
        if key in values:
            values[key] = anchored(values[key])
    if "profile" not in values and (guess := guess_profile(values["host"])) is not None:
        values["profile"] = guess
    return write(arguments.fleet, {arguments.name: values}, as_json=arguments.json)
