"""``rgt doctor``: what is wrong here, in the fleet file and on each box, and what to do about it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rgt_tui.cli.arguments import (
    boxes_argument,
    command,
    fleet_option,
    host_key_option,
    json_option,
    timeout_option,
)
from rgt_tui.cli.commands import FAILED, OK, USAGE, Subparsers

if TYPE_CHECKING:
    from rgt_tui.cli.doctoring.finding import Finding
    from rgt_tui.model.box import BoxSpec


def add_doctor(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "doctor",
        about="Check this machine, the fleet file and each box, from its name to its GPUs, and say what to do. The\n"
        "boxes are examined side by side: one that hangs holds up none of the others. The ids of the checks stay\n"
        "as they are.",
        examples=(
            "rgt doctor",
            'rgt doctor lab --json | jq -r \'select(.status == "fail") | .id + ": " + .advice\'',
        ),
    )
    boxes_argument(parser)
    fleet_option(parser)
    json_option(parser, "print one JSON object per check")
    timeout_option(parser, 60.0)
    host_key_option(parser)


def run_doctor(arguments: argparse.Namespace) -> int:
    """Check; return the exit code."""
    from rgt_tui.cli import running

    return running.run(_examine(arguments))


async def _examine(arguments: argparse.Namespace) -> int:
    import logging
    import os

    from rgt_tui.cli.doctoring import client, config
    from rgt_tui.cli.opening import chosen, meant
    from rgt_tui.cli.printing import complain
    from rgt_tui.fleet.fleet_file import FleetFileError

    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    file, found = config.file(meant(arguments))
    try:
        specs = () if found is None else chosen(found, arguments.boxes)
    except FleetFileError as error:
        complain(error)
        return USAGE
    findings = [*await client.check(), file, config.secrets(found, os.environ)]
    for finding in findings:
        _print(finding, arguments.json)
    findings += await _boxes(specs, arguments)
    if not arguments.json:
        sys.stdout.write(summary(findings) + "\n")
    return FAILED if any(finding.status == "fail" for finding in findings) else OK


async def _boxes(specs: Sequence[BoxSpec], arguments: argparse.Namespace) -> list[Finding]:
    """Examine boxes side by side; each is printed as a whole as soon as it is through."""
    import asyncio

    from rgt_tui.cli.doctoring.box import BoxDoctor
    from rgt_tui.ssh.host_keys import Policy

    policy = Policy.ACCEPT_NEW if arguments.accept_new_host_key else Policy.ASK
    gate = asyncio.Semaphore(10)
    findings: list[Finding] = []

    async def one(spec: BoxSpec) -> None:
        async with gate:
            found = await BoxDoctor(spec, policy).check(arguments.timeout)
        findings.extend(found)
        for finding in found:
            _print(finding, arguments.json)
        sys.stdout.flush()

    await asyncio.gather(*(one(spec) for spec in specs))
    return findings


def _print(finding: Finding, as_json: bool) -> None:
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(finding).decode() + "\n")
        return
    sys.stdout.write(f"{finding.status.value:<4}  {finding.id:<26}  {finding.text}\n")
    if finding.advice and finding.status.value in ("warn", "fail"):
        sys.stdout.write(f"      {'':<26}  → {finding.advice}\n")


def summary(findings: Sequence[Finding]) -> str:
    """Return the last line: how many of each."""
    counts = {word: sum(f.status.value == word for f in findings) for word in ("ok", "warn", "fail", "skip")}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)
