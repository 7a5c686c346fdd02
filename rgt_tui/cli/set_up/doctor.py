"""``rgt doctor``: what is wrong here, in the fleet file and on each box, and what to do about it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import chosen, meant
from rgt_tui.cli.printing import columns, complain, print_json, print_lines
from rgt_tui.cli.set_up import doctor_here
from rgt_tui.cli.set_up.doctor_box import BoxDoctor
from rgt_tui.cli.set_up.doctor_here import Finding
from rgt_tui.cli.set_up.set_up_arguments import DoctorArguments
from rgt_tui.cli.terminal_questions import asked_here
from rgt_tui.fleet.config import FleetFileError
from rgt_tui.model import BoxSpec
from rgt_tui.ssh import Policy

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
"""Of a status on a terminal."""


def run_doctor(arguments: DoctorArguments) -> int:
    """Check, or record what a provider answers; return the exit code."""
    if arguments.record is not None:
        from rgt_tui.cli.set_up.account_recording import run_record

        return run_record(arguments)
    return running.run(_examine(arguments))


async def _examine(arguments: DoctorArguments) -> int:
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    file, found = doctor_here.file(meant(arguments))
    try:
        specs = () if found is None else chosen(found, arguments.boxes)
    except FleetFileError as error:
        complain(error)
        return USAGE
    findings = [*await doctor_here.check(), file, doctor_here.secrets(found, os.environ)]
    for finding in findings:
        _print(finding, arguments.json)
    findings += await _boxes(specs, arguments)
    if not arguments.json:
        print_lines(summary(findings))
    return FAILED if any(finding.status == "fail" for finding in findings) else OK


async def _boxes(specs: Sequence[BoxSpec], arguments: DoctorArguments) -> list[Finding]:
    """Examine boxes side by side; each is printed as a whole as soon as it is through."""
    policy = Policy.ACCEPT_NEW if arguments.accept_new_host_key else Policy.ASK
    gate = asyncio.Semaphore(10)
    findings: list[Finding] = []

    async def one(spec: BoxSpec) -> None:
        async with gate:
            found = await BoxDoctor(spec, policy).check(arguments.timeout)
        findings.extend(found)
        async with screen:
            for finding in found:
                _print(finding, arguments.json)
            sys.stdout.flush()

    with asked_here() as questions:
        # A question that is on the screen is not scrolled away by the findings of another box.
        screen = asyncio.Lock() if questions is None else questions.turn
        await asyncio.gather(*(one(spec) for spec in specs))
    return findings


def _print(finding: Finding, as_json: bool) -> None:
    if as_json:
        print_json(finding)
        return
    status = finding.status.value
    sys.stdout.write(columns([(status, 4, STYLES[status]), (finding.id, 26, "")], finding.text))
    if finding.advice and status in ("warn", "fail"):
        sys.stdout.write(columns([("", 4, ""), ("", 26, "")], f"→ {finding.advice}"))


def summary(findings: Sequence[Finding]) -> str:
    """Return the last line: how many of each."""
    counts = {word: sum(f.status.value == word for f in findings) for word in ("ok", "warn", "fail", "skip")}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)
