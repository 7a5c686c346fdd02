"""``rgt doctor``: what is wrong here, in the fleet file and on each box, and how to fix it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rgt_tui import __version__
from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import choose_boxes, find_fleet_place, open_fleet
from rgt_tui.cli.printing import format_row, print_error, print_json, print_lines, wait_indicator
from rgt_tui.cli.running import terminal_questions
from rgt_tui.cli.set_up import doctor_here
from rgt_tui.cli.set_up.doctor_box import BoxDoctor
from rgt_tui.cli.set_up.doctor_here import DoctorFinding
from rgt_tui.cli.set_up.set_up_arguments import DoctorArguments
from rgt_tui.fleet.config import FleetFileError
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, ProviderRef
from rgt_tui.providers import KINDS, ProviderError, Providers, UnknownProvider
from rgt_tui.providers.recording import Recording, record_account
from rgt_tui.ssh import HostKeyPolicy

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
"""Style of each status on a terminal."""


def run_doctor(arguments: DoctorArguments) -> int:
    """Check, or record a provider's answers; return the exit code."""
    if arguments.record is not None:
        return run_record(arguments)
    return running.run_coroutine(_run_checks(arguments))


async def _run_checks(arguments: DoctorArguments) -> int:
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    file, found = doctor_here.check_fleet_file(find_fleet_place(arguments))
    try:
        specs = () if found is None else choose_boxes(found, arguments.boxes)
    except FleetFileError as error:
        print_error(error)
        return USAGE
    findings = [
        *await doctor_here.check_machine(),
        file,
        doctor_here.check_secrets(found, os.environ),
        doctor_here.check_provider_keys(found),
    ]
    # Before the boxes are asked: a broken ssh_config explains what follows.
    for finding in findings:
        _print_finding(finding, arguments.json)
    findings += await _check_boxes(specs, arguments)
    if not arguments.json:
        print_lines(count_by_status(findings))
    if any(finding.status == "fail" for finding in findings):
        return FAILED
    return OK


async def _check_boxes(specs: Sequence[BoxSpec], arguments: DoctorArguments) -> list[DoctorFinding]:
    """Check boxes concurrently; each one's findings are printed together when it is done."""
    if arguments.accept_new_host_key:
        policy = HostKeyPolicy.ACCEPT_NEW
    else:
        policy = HostKeyPolicy.ASK
    # A shared jump host drops connections at random beyond ten that are not logged in yet
    # (MaxStartups of sshd).
    gate = asyncio.Semaphore(10)
    findings: list[DoctorFinding] = []

    async def check_box(spec: BoxSpec) -> None:
        async with gate:
            found = await BoxDoctor(spec, policy).run_checks(arguments.timeout)
        # In the order in which boxes are done: a slow one delays none.
        findings.extend(found)
        async with screen:
            for finding in found:
                _print_finding(finding, arguments.json)
            sys.stdout.flush()

    with terminal_questions() as questions:
        # Findings of other boxes must not scroll away a question on the screen.
        if questions is None:
            screen = asyncio.Lock()
        else:
            screen = questions.turn
        await asyncio.gather(*(check_box(spec) for spec in specs))
    return findings


def _print_finding(finding: DoctorFinding, as_json: bool) -> None:
    if as_json:
        print_json(finding)
        return
    status = finding.status.value
    sys.stdout.write(
        format_row([(translate(status), 4, STYLES[status]), (finding.id, 26, "")], finding.text)
    )
    if finding.advice and status in ("warn", "fail"):
        sys.stdout.write(format_row([("", 4, ""), ("", 26, "")], f"→ {finding.advice}"))


def count_by_status(findings: Sequence[DoctorFinding]) -> str:
    """Return the last line: the number of findings per status."""
    counts = {
        word: sum(f.status.value == word for f in findings)
        for word in ("ok", "warn", "fail", "skip")
    }
    return ", ".join(f"{count} {translate(word)}" for word, count in counts.items() if count)


# ``rgt doctor ACCOUNT --record FILE``: a provider's answers for a report, without personal data.


def run_record(arguments: DoctorArguments) -> int:
    """Record one account; return the exit status."""
    if len(arguments.boxes) != 1:
        print_error(
            translate(
                "--record takes one account: a box, or one of {names}", names=", ".join(KINDS)
            )
        )
        return USAGE
    try:
        ref = account_of(arguments, arguments.boxes[0])
    except FleetFileError as error:
        print_error(error)
        return USAGE
    path = Path(arguments.record or "")
    # Before the account is read, so that this mistake costs no request.
    if path.exists():
        print_error(translate("{path} exists already; name another file", path=path))
        return USAGE
    return running.run_coroutine(_record_account(arguments, ref, path))


def account_of(arguments: DoctorArguments, named: str) -> ProviderRef:
    """Return a reference to an account, named by a box of the fleet file or a kind of provider.

    Raises:
        FleetFileError: There is no such account.
    """
    try:
        boxes = open_fleet(arguments, trusted=True).boxes
    except FleetFileError:
        # The vendor's usual key may exist without a fleet file; an untrusted file names no account.
        boxes = ()
    refs = [(spec.name, spec.provider) for spec in boxes if spec.provider is not None]
    found = next((ref for name, ref in refs if named in (name, ref.kind)), None)
    if found is not None:
        return found
    if named in KINDS:
        return ProviderRef(kind=named, instance="")
    raise FleetFileError(
        translate(
            "there is no box with a provider and no provider called {named!r}; providers: {kinds}",
            named=named,
            kinds=", ".join(KINDS),
        )
    )


async def _record_account(arguments: DoctorArguments, ref: ProviderRef, path: Path) -> int:
    providers = Providers()
    try:
        with wait_indicator(translate("reading the account at {kind} …", kind=ref.kind)):
            found = await record_account(
                providers.find_account(ref),
                ref.instance,
                rgt=__version__,
                kind=ref.kind,
                month=time.strftime("%Y-%m"),
            )
        write_new(path, found)
    except (ProviderError, UnknownProvider) as error:
        print_error(translate("nothing was recorded: {error}", error=error))
        return FAILED
    except OSError as error:
        print_error(
            translate(
                "cannot write {path}: {strerror}", path=path, strerror=error.strerror or error
            )
        )
        return FAILED
    finally:
        await providers.close()
    for failure in found.failed:
        print_error(translate("not answered as expected: {failure}", failure=failure))
    if arguments.json:
        print_json(
            {
                "file": str(path),
                "kind": ref.kind,
                "exchanges": len(found.exchanges),
                "failed": found.failed,
            }
        )
        return OK
    print_lines(
        translate(
            "{exchanges} answers of {kind} are in {path}; ids, names, addresses, keys "
            "and balances are replaced. Read it before you share it.",
            exchanges=len(found.exchanges),
            kind=ref.kind,
            path=path,
        )
    )
    return OK


def write_new(path: Path, found: Recording) -> None:
    """Write a recording into a new file that only its owner can read."""
    text = msgspec.json.format(msgspec.json.encode(found), indent=1)
    # The mode is set before any content is there; ids are replaced, but a person should read it
    # first.
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(text + b"\n")
