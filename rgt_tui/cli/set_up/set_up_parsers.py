"""Parsers of the commands that set things up: options, help and examples."""

from __future__ import annotations

import argparse

from rgt_tui.cli.arguments import (
    box_argument,
    boxes_argument,
    command,
    connection_options,
    duration,
    fleet_option,
    json_option,
    port,
    provider_kinds,
    words_list,
)
from rgt_tui.cli.commands import Subparsers, epilog

SHELLS = ("bash", "zsh", "fish")
AGENT_EXAMPLE = "rgt agent build --out rgt-box.pyz"


def add_demo(subparsers: Subparsers) -> None:
    """Declare ``rgt demo``."""
    demo = command(
        subparsers,
        "demo",
        about="Open the dashboard on three sandboxed boxes that really train on this machine. Where that cannot run,\n"
        "it plays a recorded run, marked REPLAY, and says what the real one needs.",
        examples=(
            "rgt demo",
            "rgt demo --headless --for 45 --json",
            "rgt demo --headless --until story",
            "rgt demo --fleet-only --write-fleet demo.toml",
        ),
    )
    demo.add_argument("--headless", action="store_true", help="no screen: progress on stderr")
    demo.add_argument(
        "--for", dest="seconds", type=duration, metavar="TIME", help="stop after this time: 45s, 30m"
    )
    demo.add_argument(
        "--until",
        choices=["story", "teardown", "autostop"],
        help="stop when all three stories have happened; or let one box train, bring its results home and end it; or "
        "park itself while rgt is not connected",
    )
    json_option(demo, "print one JSON object on the last line")
    demo.add_argument("--port-base", type=port, metavar="PORT", help="first SSH port (default: any free)")
    demo.add_argument(
        "--follow-advice",
        action="store_true",
        help="remove what fills the disk once rgt has said so (otherwise that is yours to do)",
    )
    demo.add_argument(
        "--fleet-only", action="store_true", help="run the boxes alone, for another rgt to watch"
    )
    demo.add_argument("--write-fleet", metavar="FILE", help="with --fleet-only: write the fleet file there")


def add_init(subparsers: Subparsers) -> None:
    """Declare ``rgt init``."""
    parser = command(
        subparsers,
        "init",
        about="Write a starter fleet file, everything explained in comments. An existing file is never overwritten.",
        examples=("rgt init", "rgt init --path ~/.config/rgt/fleet.toml"),
    )
    parser.add_argument(
        "--path",
        metavar="FILE",
        help="where to write it (default: what --fleet or RGT_FLEET names, else ./rgt.toml)",
    )
    fleet_option(parser)
    json_option(parser, "print one JSON object: the path")


def profiles(**_: object) -> list[str]:
    """Return the ids of all profiles, for a shell."""
    from rgt_tui.profiles import all_profiles

    return list(all_profiles())


def _port(text: str) -> int:
    return port(text, 1, 65535)


def add_add(subparsers: Subparsers) -> None:
    """Declare ``rgt add``."""
    parser = command(
        subparsers,
        "add",
        about="Add a box to the fleet file; the rest of it stays as it is, comments included. HOST is a host\n"
        "name, an alias in ssh_config, USER@HOST, or, in quotes, the whole ssh command that a rental gives you.",
        examples=(
            "rgt add lab lab-a100",
            'rgt add vast "ssh -p 40022 root@1.2.3.4 -L 8080:localhost:8080" --profile vastai',
            "rgt add seeta \"ssh -p 12345 root@connect.westb.seetacloud.com\" --log '~/exp/*.log'",
        ),
    )
    parser.add_argument("name", metavar="NAME", help="what to call the box")
    parser.add_argument("target", metavar="HOST", help="a host, or an ssh command in quotes")
    profile = parser.add_argument(
        "--profile", metavar="P", help="platform (default: recognised by the host name)"
    )
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


def add_import(subparsers: Subparsers) -> None:
    """Declare ``rgt import``."""
    parser = command(
        subparsers,
        "import",
        about="List the hosts that ssh_config names (Include is followed, wildcards are not hosts) as boxes; with\n"
        "--write, add them to the fleet file. A box names its alias only: port, user, keys and jump hosts stay in\n"
        "ssh_config. With --from: the machines of these providers' accounts that no box names yet, with what they\n"
        "cost; accounts that the fleet file names, else the one of your usual key.",
        examples=(
            "rgt import",
            "rgt import 'gpu-*' lab --write",
            "rgt import --config work.conf --write",
            "rgt import --from runpod --write",
        ),
    )
    parser.add_argument(
        "patterns",
        metavar="PATTERN",
        nargs="*",
        help="only these hosts, or names or ids of machines; globs (default: all)",
    )
    sources = parser.add_argument(
        "--from",
        dest="sources",
        type=words_list,
        metavar="PROVIDER[,…]",
        help="machines of these providers, not hosts of ssh_config",
    )
    sources.completer = lambda **_: provider_kinds()  # type: ignore[attr-defined]
    parser.add_argument(
        "--config", metavar="FILE", help="that ssh_config file, not ~/.ssh/config and the system's"
    )
    parser.add_argument(
        "--write", action="store_true", help="write, instead of only showing what would be added"
    )
    json_option(parser, "print one JSON object per box: its keys, and the file")
    fleet_option(parser)


def add_trust(subparsers: Subparsers) -> None:
    """Declare ``rgt trust``."""
    parser = command(
        subparsers,
        "trust",
        about="Show a fleet file in the working tree, or what has changed in it since it was trusted, and\n"
        "ask whether it may act: run the programs, send the keys and read the files that it names. Until then, only\n"
        "the names and hosts of its boxes count. Only this path, with exactly what was shown, becomes trusted.",
        examples=("rgt trust", "rgt trust ~/exp/rgt.toml --yes", "rgt trust --list", "rgt trust --revoke"),
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the fleet file (default: the one that is found)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--yes", action="store_true", help="trust what is shown without asking")
    what.add_argument("--list", action="store_true", help="list what is trusted")
    what.add_argument("--revoke", action="store_true", help="stop trusting it")
    json_option(parser, "print JSON objects: path, trusted, since, why")
    fleet_option(parser)


def add_doctor(subparsers: Subparsers) -> None:
    """Declare ``rgt doctor``."""
    parser = command(
        subparsers,
        "doctor",
        about="Check this machine, the fleet file and each box, from its name to its GPUs, and say what to do. The\n"
        "boxes are examined side by side: one that hangs holds up none of the others. The ids of the checks stay\n"
        "as they are. On a terminal, it shows an unknown host key and asks.",
        examples=(
            "rgt doctor",
            'rgt doctor lab --json | jq -r \'select(.status == "fail") | .id + ": " + .advice\'',
            "rgt doctor vastai --record vastai.json",
        ),
    )
    boxes_argument(parser)
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="instead of checking, write what a provider (vastai, runpod, …, or the one of a box) answers to reads of "
        "your account, with ids, names, addresses and keys replaced, for a report",
    )
    connection_options(parser, json="print one JSON object per check", seconds=60.0)


def add_remove(subparsers: Subparsers) -> None:
    """Declare ``rgt remove``."""
    parser = command(
        subparsers,
        "remove",
        about="Stop rgt's recorder on a box, and remove its history and the files of agent and trainer there. Jobs,\n"
        "results and checkpoints are not touched. Nothing is removed while a queue runs or waits there, or another\n"
        "rgt watches. What a process, a Slurm job or a Pod may still use is kept, also where rgt cannot tell.\n"
        "The machine itself is neither stopped nor destroyed, and keeps billing.",
        examples=(
            "rgt remove lab --dry-run",
            "rgt remove lab --yes --forget",
            "rgt remove lab --old      only agents that no process, job or Pod can name any more",
            "rgt remove lab --only-forget",
        ),
    )
    box_argument(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--old", action="store_true", help="only agents of other versions of rgt")
    what.add_argument("--forget", action="store_true", help="then remove the box from the fleet file, too")
    what.add_argument(
        "--only-forget", action="store_true", help="only that, without connecting: the machine is gone"
    )
    connection_options(
        parser,
        json="print one JSON object: box, dry_run, refused, failed, bytes, things, forgotten",
        seconds=60.0,
    )


def add_completion(subparsers: Subparsers) -> None:
    """Declare ``rgt completion``."""
    parser = command(
        subparsers,
        "completion",
        about="Print the script that makes a shell complete commands, options and box names (it asks rgt itself at\n"
        "every TAB, so it is never out of date). Paths on a box are not completed.",
        examples=(
            'eval "$(rgt completion bash)"                        in ~/.bashrc',
            'eval "$(rgt completion zsh)"                         in ~/.zshrc, after compinit',
            "rgt completion fish > ~/.config/fish/completions/rgt.fish",
        ),
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def add_agent(subparsers: Subparsers) -> None:
    """Declare ``rgt agent``."""
    parser = command(
        subparsers,
        "agent",
        about="The program that rgt puts on a box.",
        examples=(AGENT_EXAMPLE,),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    build = verbs.add_parser(
        "build",
        help="write the agent's zipapp",
        epilog=epilog("agent", AGENT_EXAMPLE),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    build.add_argument("--out", metavar="FILE", required=True, help="where to write it")
