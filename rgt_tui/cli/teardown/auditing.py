"""``rgt audit``: who did what to which box, what is still open, and whether the log is intact."""

from __future__ import annotations

import os
import sys
import time

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import find_fleet_place
from rgt_tui.cli.printing import format_row, print_error, print_json, print_lines
from rgt_tui.cli.teardown.money_arguments import AuditArguments, ReceiptArguments
from rgt_tui.fleet.config import FleetFileError, open_place
from rgt_tui.fleet.history.morning_report import add_costs
from rgt_tui.gate import (
    JOURNAL,
    RECEIPTS,
    ActionState,
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLine,
    AuditLog,
    InstanceLocked,
    Journal,
    JournalFailed,
    OpenAction,
    Receipt,
    ReceiptBook,
    describe_chain_check,
    describe_open_action,
    read_checked,
    receipt_markdown,
    receipt_rows,
    receipt_title,
)
from rgt_tui.gate.audit import default_path
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import moment
from rgt_tui.store import FleetHistory, history_path


def run_audit(arguments: AuditArguments) -> int:
    """Print or verify the record; return the exit code."""
    log = AuditLog(default_path(os.environ))
    journal = Journal(log.path.parent / JOURNAL)
    if arguments.seen is not None:
        return _settle_actions(log, journal, arguments.box, arguments.seen)
    try:
        if arguments.verify:
            return _verify_log(log, as_json=arguments.json)
        lines = list(log.read_lines())
    except (AuditFailed, JournalFailed) as error:
        print_error(error)
        return USAGE
    # After the log, so that an action that is recorded meanwhile is listed at least once.
    open_now, problems = journal.open_actions()
    for line in lines:
        # A line that cannot be read may be about any box; it is shown without --box.
        if arguments.box is None or (line.entry is not None and line.entry.box == arguments.box):
            _print_audit_line(line, as_json=arguments.json)
    for action in open_now:
        if arguments.box in (None, action.first.box):
            _print_open(action, as_json=arguments.json)
    for problem in problems:
        print_error(problem)
    if problems:
        return USAGE
    return OK


def run_receipt(arguments: ReceiptArguments) -> int:
    """Print the newest receipt of a box, or a line for every receipt; return the exit code."""
    book = ReceiptBook(default_path(os.environ).parent / RECEIPTS)
    if arguments.box is None:
        for one in book.list_receipts():
            if arguments.json:
                print_json(one)
            else:
                print_lines(f"{moment(one.begun_at)}  {receipt_title(one)}, by {one.who}")
        return OK
    found = book.find_newest(arguments.box)
    if found is None:
        print_error(
            translate(
                "no receipt for {box}: rgt has not stopped or destroyed it", box=arguments.box
            )
        )
        return FAILED
    return running.run_coroutine(_print_with_costs(book, found, arguments))


async def _print_with_costs(book: ReceiptBook, found: Receipt, arguments: ReceiptArguments) -> int:
    found = await _with_costs(book, found, arguments)
    if arguments.markdown:
        print_lines(*receipt_markdown(found).splitlines())
    else:
        print_receipt(found, as_json=arguments.json)
    return OK


async def _with_costs(book: ReceiptBook, found: Receipt, arguments: ReceiptArguments) -> Receipt:
    """Add the costs that the history has of the box, if there is a fleet file and a history."""
    place = find_fleet_place(arguments)
    path = history_path(os.environ)
    if place is None or path is None or not path.exists():
        return found
    try:
        config = open_place(place)
    except FleetFileError:
        return found
    history = FleetHistory(path, fleet=str(config.path.absolute()))
    # Costs of a box that the file no longer names are not found: its receipt stays without.
    history.adopt_boxes(config.boxes)
    try:
        return await add_costs(book, found, history) or found
    finally:
        await history.close()


def print_receipt(receipt: Receipt, *, as_json: bool) -> None:
    """Print a receipt: a line per fact for a person, one object for a script."""
    if as_json:
        print_json(receipt)
        return
    print_lines(receipt_title(receipt))
    for label, text in receipt_rows(receipt):
        sys.stdout.write(format_row([(translate(label), 13, "dim")], text))


def _settle_actions(log: AuditLog, journal: Journal, box: str | None, seen: str) -> int:
    """Settle a box's open actions with the result that a person saw on the console.

    No reading can do this on every platform. Nothing is sent.
    """
    if box is None:
        print_error(translate("--seen needs one box, as in rgt audit --box lab --seen off"))
        return USAGE
    found, problems = journal.open_actions()
    # Creations have no verb: they are settled with `rgt up --written-off`, which reads the list
    # first.
    mine = [one for one in found if one.first.box == box and one.first.verb is not None]
    if not mine:
        for problem in problems or (translate("{box} has no open action", box=box),):
            print_error(problem)
        if problems:
            return USAGE
        return FAILED
    if seen == "off":
        state = ActionState.OFF
    else:
        # "on" on the console: the call had no effect, and the box bills.
        state = ActionState.FAILED
    for one in mine:
        first = one.first
        text = translate(
            "{state}, seen on the console by a person: it is {seen}", state=state, seen=seen
        )
        try:
            # Another rgt may be polling this very action: only the holder of the lock may settle
            # it.
            with journal.lock_instance(first.target, first.box, first.verb) as held:
                # The audit log first, because the journal's line refers to it.
                line = log.record_entry(
                    AuditEntry(
                        at=time.time(),
                        event=AuditEvent.ANSWER,
                        box=first.box,
                        verb=first.verb,
                        instance=first.target.instance,
                        text=text,
                    )
                )
                # None: another rgt has settled it since it was listed.
                if held.earlier is not None:
                    held.settle_earlier(state, text, audit=line)
                    ReceiptBook(log.path.parent / RECEIPTS).finish_receipt(
                        first.action, state, time.time(), text
                    )
        except (AuditFailed, JournalFailed, InstanceLocked) as error:
            print_error(error)
            return FAILED
        print_lines(f"{describe_open_action(one)}: {text}")
    return OK


def _print_audit_line(line: AuditLine, *, as_json: bool) -> None:
    if as_json:
        if line.entry is not None:
            known = msgspec.to_builtins(line.entry)
        else:
            known = {}
        print_json({"line": line.number, **known})
        return
    text = translate("line {number}: it cannot be read", number=line.number)
    if line.entry is not None:
        text = _format_entry(line.entry)
    print_lines(text)


def _format_entry(entry: AuditEntry) -> str:
    deed, event = translate(entry.deed_text), translate(entry.event)
    what = (entry.who, entry.box, deed, entry.instance, event, show_recorded(entry.text))
    return "  ".join((moment(entry.at), *filter(None, what)))


def _print_open(action: OpenAction, *, as_json: bool) -> None:
    if as_json:
        first, last = action.first, action.last
        body = {
            "event": "open", "at": last.at, "state": last.state, "box": first.box,
            "verb": first.verb,
            "kind": first.target.kind, "account": first.target.account,
            "instance": first.target.instance,
            "who": first.who, "pid": first.pid, "text": last.text,
            "token": None if first.rent is None else first.rent.token, "machine": last.machine,
        }  # fmt: skip
        print_json(body)
        return
    print_lines(
        translate(
            "OPEN: {action}; rgt polls the provider while it runs, and sends nothing again",
            action=describe_open_action(action),
        )
    )


def _verify_log(log: AuditLog, *, as_json: bool) -> int:
    # The chain of hashes detects a change of any line but the newest ones: those need a copy.
    _, chain = read_checked(os.environ)
    if as_json:
        body = {
            "ok": chain.broken is None, "path": str(log.path), "lines": chain.lines,
            "begins": chain.begins,
            "broken": chain.broken, "reason": chain.reason, "torn": chain.torn,
        }  # fmt: skip
        print_json(body)
    else:
        print_lines(f"{log.path}: {describe_chain_check(chain)}")
    if chain.broken is None:
        return OK
    return FAILED
