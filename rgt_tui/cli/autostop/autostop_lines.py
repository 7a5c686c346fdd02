"""What ``rgt autostop`` and ``rgt lease`` print: what arming would mean, and the status of an armed box."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rgt_tui.cli.printing import columns, print_lines
from rgt_tui.fleet.autostop.arming import Rehearsal
from rgt_tui.health import clock_words, story_lines
from rgt_tui.model import (
    AutostopReading,
    AutostopStatus,
    EndsBy,
    IdleHolder,
    Mode,
    StopEvent,
    time_of_day,
)
from rgt_tui.profiles import age, money, size

WIDTH = 16
UNACCEPTED = "it is not ended unless accepted (--accept): the box calls you instead"


def body_of(found: Rehearsal, *, ok: bool) -> dict[str, Any]:
    """Return what scripts read before anything is armed."""
    review, request = found.review, found.request
    status = found.answer.status if found.answer is not None else AutostopStatus()
    return {
        "ok": ok,
        "reasons": found.reasons,
        "box": found.spec.name,
        "mode": found.wish.mode,
        "action": found.wish.action,
        "limit_s": found.wish.limit_s,
        "instance": request.instance if request is not None else "",
        "boot": request.boot if request is not None else "",
        "key": status.key,
        "would_block": status.why,
        "holders": status.holders,
        "saving": status.saving,
        "unsaving": status.unsaving,
        "kept": review.kept if review is not None else (),
        "lost": review.lost if review is not None else (),
        "only_copies": found.erased,
        "keeps_billing": review.keeps_billing if review is not None else (),
        "promises": found.promises,
        "status": status,
    }


def show_rehearsal(found: Rehearsal, now: float) -> None:
    """Print what arming would mean, for the person who is about to type the name."""
    for title, texts in _sections(found):
        for text in texts:
            sys.stdout.write(columns([(title, WIDTH, "dim")], text))
            title = ""


def _sections(found: Rehearsal) -> Iterator[tuple[str, Sequence[str]]]:
    wish, review, request = found.wish, found.review, found.request
    status = found.answer.status if found.answer is not None else AutostopStatus()
    when = f"when idle for {age(wish.limit_s)}" if wish.mode is Mode.IDLE else f"after {age(wish.limit_s)}"
    does = "parks itself" if wish.action is EndsBy.PARK else "notifies you and stops nothing,"
    label = f" ({review.native_label})" if review is not None and wish.action is EndsBy.PARK else ""
    yield found.spec.name, (f"{does}{label} {when}",)
    if request is not None:
        yield "for", (f"instance {request.instance or 'none'}, boot {request.boot}, and no other",)
        yield "warns", (f"{age(request.warn_s)} before; rgt keep {found.spec.name} 2h puts it off",)
    if wish.action is EndsBy.ASK:
        yield (
            "notifies",
            (
                f"the address of rgt notify {found.spec.name}; without one, only rgt and terminals there show it",
            ),
        )
    yield "holds", found.promises
    if wish.action is EndsBy.PARK:
        proof = status.key.text if status.key is not None else f"not asked; it would be {found.key_proof}"
        yield "its own key", (found.key_words, f"proof: {proof}")
    if found.answer is not None and wish.mode is Mode.IDLE:
        yield "blocks it now", status.why or ("nothing: it is idle",)
        yield (
            "holds memory",
            tuple(_holder(one, request.accept_holders if request else ()) for one in status.holders),
        )
    if wish.mode is Mode.LEASE and wish.action is EndsBy.PARK:
        yield "saves at SIGTERM", status.saving or ("no run is known to",)
        yield (
            "does not",
            tuple(
                f"{one}: accepted" if one in wish.accept else f"{one}, as far as known: {UNACCEPTED}"
                for one in status.unsaving
            ),
        )
    if review is not None and wish.action is EndsBy.PARK:
        yield "lost by the park", review.lost or ("nothing, by the profile",)
        yield "only copy", found.erased
        yield "kept", review.kept or ("nothing",)
        yield "keeps billing", review.keeps_billing or ("nothing found",)
        yield "then without you", review.dangers
        now = f"{money(review.per_hour, review.currency, review.at_least)}/h"
        yield "costs now", (now,)


def _holder(one: IdleHolder, accepted: Sequence[object]) -> str:
    held = "" if one.bytes is None else f", {size(one.bytes)}"
    word = (
        "accepted"
        if one.id in accepted
        else f"keeps it from being idle; --accept {one.pid} says that it may end"
    )
    return f"pid {one.pid} {one.cmd}{held}: {word}"


def status_body(box: str, status: AutostopStatus, story: Sequence[StopEvent]) -> dict[str, Any]:
    """Return what scripts read of a box's own stop."""
    # The status names the box that it was armed as: none, where it is not armed.
    return {"ok": True, **msgspec.to_builtins(status), "box": box, "story": msgspec.to_builtins(story)}


def show_status(box: str, status: AutostopStatus, story: Sequence[StopEvent]) -> None:
    """Print the status of a box's own stop, and its newest story."""
    shown = [one for one in (status, status.lease) if one is not None and (one.armed or one.state != "none")]
    if not shown:
        print_lines(f"{box}: not armed: it does not stop itself")
    for one in shown:
        print_lines(f"{box}: {clock_words(reading_of(one))}")
        if one.boot:
            since = "" if one.since is None else f", since {time_of_day(one.since)}"
            _line("for", f"instance {one.instance or 'none'}, boot {one.boot}{since}")
        for why in one.why:
            _line("blocks it now", why)
        for holder in one.holders:
            _line("holds memory", _holder(holder, ()))
        for run in one.unsaving:
            _line("does not save", run)
        if one.key is not None:
            _line("its own key", one.key.text)
        if one.last is not None and not story:
            _line("last", f"{time_of_day(one.last.at)} {one.last.event}: {one.last.text}")
    for line in story_lines(tuple(story)):
        print_lines(line)


def _line(title: str, text: str) -> None:
    sys.stdout.write(columns([(title, WIDTH, "dim")], text))


def reading_of(status: AutostopStatus) -> AutostopReading:
    """Return a status as a sample says it."""
    return AutostopReading(
        mode=status.mode or Mode.IDLE,
        action=status.action or EndsBy.PARK,
        state=status.state,
        idle_s=status.idle_s,
        unknown_s=status.unknown_s,
        limit_s=status.limit_s,
        stops_in_s=status.stops_in_s,
        kept_until=status.kept_until,
        why=status.why[:3],
    )
