"""Billing actions that a person carries out on the platform's console, because no provider can be asked.

The gate judges such a box as any other. Only the last step differs: rgt sends nothing, says what to click, and leaves
the action open until the person says that it is done. Silence of the box closes nothing by itself, and while the box
answers nobody's word does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from rgt_tui.fleet.fleet_source import GateClosed
from rgt_tui.gate import (
    ActionState,
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLog,
    Held,
    Journal,
    JournalFailed,
    OpenAction,
    ReceiptBook,
    Target,
    words,
)
from rgt_tui.gate.audit import who
from rgt_tui.model import CLICK, Link, Meter, Permit, StopPhase, StopProgress, Verb, moment
from rgt_tui.providers import PermitRefused, Provider, ProviderError

WAITING = frozenset({ActionState.SENT, ActionState.ANSWERED, ActionState.UNKNOWN, ActionState.YOURS})
"""States of an action that the person's word can end; `intent` alone never came to the console."""


def is_click(provider: Provider, verb: Verb) -> bool:
    """Tell whether a person carries the action out, since the platform has no call for it."""
    return provider.action(verb) == CLICK


async def hand_over(
    provider: Provider, permit: Permit, clock: Callable[[], float]
) -> AsyncIterator[StopProgress]:
    """Use the permit up, and say what the person is to click; nothing is sent and nothing is polled."""
    try:
        said = await (provider.stop(permit) if permit.verb is Verb.PARK else provider.destroy(permit))
    except (PermitRefused, ProviderError) as error:
        yield StopProgress(phase=StopPhase.FAILED, at=clock(), text=f"nothing was done: {error}")
        return
    again = f"; once the console shows that it is done: rgt down {permit.box} --done"
    yield StopProgress(phase=StopPhase.YOURS, at=clock(), text=f"{said}{again}")


def own_act(verb: Verb, step: StopProgress) -> tuple[str, str] | None:
    """Return the event, and its level, for a step of what the person does to a box; None = it is no news."""
    if step.phase is StopPhase.REQUESTED:
        return f"{verb} sent by you: {step.text}", "info"
    if step.phase is StopPhase.YOURS:
        return f"{verb} left to you: {step.text}", "info"
    if step.phase is StopPhase.METER_OFF:
        return f"{verb.done_word} by you: {step.text}", "info"
    if step.phase in (StopPhase.FAILED, StopPhase.UNCONFIRMED):
        return f"not known to be {verb.done_word}: {step.text}", "error"
    return None


def waiting_click(journal: Journal, target: Target) -> OpenAction | None:
    """Return the action on a machine whose end a person has to say; None = none is open."""
    found, _ = journal.open_actions()
    mine = (one for one in found if one.first.target == target and one.first.verb is not None)
    return next((one for one in mine if one.last.state in WAITING), None)


SILENT = frozenset({Link.UNREACHABLE, Link.REFUSED_KEY})
"""Links of a box that may be off: it does not answer, or another machine, of another host key, has its address."""


def not_silent(box: str, link: Link, reason: str) -> str:
    """Say why a person's word does not count: rgt has not seen the box silent."""
    if link is Link.REFUSED_LOGIN:
        why = f"{box} answers, and refuses the login ({reason}), so it is not off"
    elif link is Link.PAUSED:
        why = f"{box} is paused by you, so rgt does not check whether it still answers: resume it"
    else:
        why = f"it is not known yet whether {box} still answers ({reason or link.value}): say it again"
    return f"{why}. If you have seen on the console that it is off: rgt audit --box {box} --seen off"


def still_there(box: str) -> str:
    """Say why a person's word does not count: the box answers."""
    return (
        f"{box} still answers over SSH, so it is not off: look at the console, then say it again. "
        f"If the click is not going to be made: rgt audit --box {box} --seen on"
    )


async def close_by_word(
    journal: Journal,
    audit: AuditLog,
    receipts: ReceiptBook,
    action: OpenAction,
    seen: Meter,
    now: float,
    spent: float | None = None,
) -> str:
    """Write down that the person says that it is done; return the words for it.

    Args:
        journal: Where the action is open.
        audit: Where the word is recorded.
        receipts: Where what was known before the click is kept.
        action: The open one.
        seen: What is seen of the box now.
        now: Client clock.
        spent: What the box has cost by now, where that is known.

    Raises:
        GateClosed: it could not be written down; the action stays open.
    """
    first = action.first
    text = (
        f"done on the console, by the word of {who()}; seen from here: {seen.native_status or 'nothing'}; "
        f"evidence of {moment(first.at)}, not looked at again"
    )

    def write() -> None:
        with journal.hold(first.target, first.box, first.verb) as held:
            if held.earlier is None or held.earlier.first.action != first.action:
                raise GateClosed((f"{words(action)}: somebody else has settled it",))
            entry = AuditEntry(
                at=now,
                event=AuditEvent.ANSWER,
                box=first.box,
                verb=first.verb,
                instance=first.target.instance,
                evidence=first.evidence,
                text=f"{ActionState.OFF}: {text}",
            )
            held.settle(ActionState.OFF, text, audit=audit.record(entry))

    try:
        await asyncio.to_thread(write)
    except (AuditFailed, JournalFailed, Held) as error:
        raise GateClosed((str(error),)) from error
    await asyncio.to_thread(receipts.finish, first.action, ActionState.OFF, now, text, spent)
    return text
