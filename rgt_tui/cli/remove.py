"""``rgt remove``: take rgt off a box, and on request the box out of the fleet file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rgt_tui.cli.arguments import (
    box_argument,
    command,
    fleet_option,
    host_key_option,
    json_option,
    timeout_option,
)
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE, Subparsers

if TYPE_CHECKING:
    from rgt_tui.fleet.removing import Removal
    from rgt_tui.model.box import BoxSpec


def add_remove(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "remove",
        about="Stop rgt's recorder on a box, and remove its history and the files of agent and trainer there. Jobs,\n"
        "results and checkpoints are not touched. Nothing is removed while a queue runs or waits there, or another\n"
        "rgt watches. What a process, a Slurm job or a Pod can still name is kept, also where that cannot be told.\n"
        "The machine itself is neither stopped nor destroyed, and bills on.",
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
    what.add_argument("--forget", action="store_true", help="then take the box out of the fleet file, too")
    what.add_argument(
        "--only-forget", action="store_true", help="only that, without connecting: the machine has gone"
    )
    fleet_option(parser)
    json_option(parser, "print one JSON object: box, dry_run, refused, failed, bytes, things, forgotten")
    timeout_option(parser, 60.0)
    host_key_option(parser)


def run_remove(arguments: argparse.Namespace) -> int:
    """Look, ask, remove; return the exit code."""
    from rgt_tui.cli.opening import open_boxes
    from rgt_tui.cli.printing import complain

    opened = open_boxes(arguments, [arguments.box], trusted=True)
    if opened is None:
        return USAGE
    config, (spec,) = opened
    from rgt_tui.fleet.removing import Removal

    if arguments.only_forget:
        nothing = Removal((), (), 0)
        if not arguments.dry_run and not _agreed(arguments, f"Take {spec.name} out of {config.path}?"):
            return FAILED
        return _forget(arguments, spec, nothing)
    import logging

    from rgt_tui.cli import running
    from rgt_tui.model.plain import clean
    from rgt_tui.ssh.ssh_errors import (
        BoxError,
        CommandFailed,
        ConfigError,
        DeployFailed,
        NoCommands,
        NoPython,
    )

    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    try:
        return running.run(_remove(arguments, spec))
    except (NoPython, NoCommands, DeployFailed, CommandFailed) as error:
        complain(f"{spec.name}: {clean(str(error))}")
        return FAILED
    except ConfigError as error:
        complain(f"{spec.name}: {clean(str(error))}")
        return USAGE
    except BoxError as error:
        hint = "; if the machine has gone: rgt remove --only-forget" if arguments.forget else ""
        complain(f"{spec.name}: {clean(str(error))}{hint}")
        return UNREACHABLE


async def _remove(arguments: argparse.Namespace, spec: BoxSpec) -> int:
    found = await _removal(arguments, spec, dry_run=True)
    if not arguments.dry_run and not found.refused and any(thing.kept is None for thing in found.things):
        if not arguments.yes and not arguments.json:
            _print(spec.name, found, dry_run=True)
        if not _agreed(arguments, f"Remove this from {spec.name}?"):
            return FAILED
        found = await _removal(arguments, spec, dry_run=False)
    if arguments.forget and not found.refused and not found.failed:
        return _forget(arguments, spec, found)
    return _tell(arguments, spec, found, forgotten=False)


async def _removal(arguments: argparse.Namespace, spec: BoxSpec, *, dry_run: bool) -> Removal:
    from rgt_tui.fleet.removing import remove_agent

    return await remove_agent(
        spec,
        arguments.timeout,
        old=arguments.old,
        dry_run=dry_run,
        accept_new_host_keys=arguments.accept_new_host_key,
    )


def _agreed(arguments: argparse.Namespace, question: str) -> bool:
    """Ask; without a terminal there is nobody who could be asked."""
    from rgt_tui.cli.printing import complain

    if arguments.yes:
        return True
    if arguments.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        complain("nothing was removed: nobody can be asked here; look with --dry-run, then say --yes")
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    complain("nothing was removed")
    return False


def _forget(arguments: argparse.Namespace, spec: BoxSpec, found: Removal) -> int:
    """Take the box out of the fleet file; return the exit code."""
    from rgt_tui.cli.adding import keep_trust, target
    from rgt_tui.cli.printing import complain
    from rgt_tui.fleet.config.write import remove_box
    from rgt_tui.fleet.fleet_file import FleetFileError

    if arguments.dry_run:
        return _tell(arguments, spec, found, forgotten=False)
    path, lies_there = target(arguments.fleet)
    doubts: list[str | None] = []
    try:
        remove_box(path, spec.name, lambda before, after: doubts.append(keep_trust(before, after)))
    except FleetFileError as error:
        complain(error)
        _tell(arguments, spec, found, forgotten=False)
        return FAILED
    for doubt in doubts:
        if doubt and lies_there:
            complain(doubt)
    code = _tell(arguments, spec, found, forgotten=True)
    if not arguments.json:
        sys.stdout.write(f"{path}: {spec.name} is out of it\n")
    return code


def _tell(arguments: argparse.Namespace, spec: BoxSpec, found: Removal, *, forgotten: bool) -> int:
    import msgspec

    from rgt_tui.cli.printing import json_line

    if arguments.json:
        head = {"box": spec.name, "dry_run": arguments.dry_run}
        body = {**head, **msgspec.to_builtins(found), "forgotten": forgotten}
        sys.stdout.write(json_line(body).decode())
    elif not arguments.only_forget:
        _print(spec.name, found, dry_run=arguments.dry_run)
    return OK if found.whole else FAILED


def _print(name: str, found: Removal, *, dry_run: bool) -> None:
    from rgt_tui.cli.printing import complain
    from rgt_tui.profiles.readings import size

    for why in found.refused:
        complain(f"{name}: nothing was removed: {why}")
    if found.refused:
        return
    going = [thing for thing in found.things if thing.kept is None]
    said = "would be removed" if dry_run else "removed"
    sys.stdout.write(f"{name}: {size(found.bytes)} {said}\n" if going else f"{name}: nothing to remove\n")
    for thing in found.things:
        if thing.kept is None:
            sys.stdout.write(f"  {size(thing.bytes):>8}  {thing.path}  ({thing.what})\n")
    for thing in found.things:
        if thing.kept is not None:
            sys.stdout.write(f"  kept      {thing.path}  ({thing.what}): {thing.kept}\n")
    for why in found.failed:
        complain(f"{name}: not removed: {why}")
