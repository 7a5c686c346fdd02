"""``rgt status`` and ``rgt patrol``: connect once, and report each box and account in one line."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import OK, TROUBLE, UNKNOWN, UNREACHABLE, NotOpened
from rgt_tui.cli.gathering import gather_named
from rgt_tui.cli.opening import open_boxes
from rgt_tui.cli.printing import (
    drop_output,
    is_lost_output,
    print_error,
    print_json,
    print_lines,
    waiting_paused,
    write_json,
)
from rgt_tui.cli.status_line import (
    NAME_WIDTH,
    STATE_WIDTH,
    StatusLine,
    StatusVerdict,
    encode_line,
    status_line,
    text_line,
)
from rgt_tui.cli.watch_arguments import NightArguments, PatrolArguments, StatusArguments
from rgt_tui.fleet.config import FleetConfig
from rgt_tui.fleet.history.night_forecast import forecast_night, night_lines
from rgt_tui.health import (
    SentAlert,
    StoredAlerts,
    alerts_path,
    assess_box,
    calls_for_person_once,
    ended_at,
    key_of,
    load_alerts,
    update_alerts,
)
from rgt_tui.language import translate
from rgt_tui.model import (
    MACHINE,
    AccountBill,
    BoxSpec,
    BoxState,
    FleetState,
    FrozenStruct,
    MoneyAmount,
    UnlistedItem,
    format_money,
    pad_cells,
)
from rgt_tui.profiles import describe_unlisted_item, load_profile, thing_price


def run_status(arguments: StatusArguments) -> int:
    """Print the state of the boxes; return the exit code."""
    config, specs = open_boxes(arguments, arguments.boxes)

    return running.run_coroutine(_print_status(specs, config, arguments), boxes=len(specs))


def run_night(arguments: NightArguments) -> int:
    """Print the night ahead; return the exit code."""
    config, specs = open_boxes(arguments, arguments.boxes)
    return running.run_coroutine(_print_night(specs, config, arguments), boxes=len(specs))


async def _print_night(
    specs: Sequence[BoxSpec], config: FleetConfig, arguments: NightArguments
) -> int:
    # Forecasts need the initial data of every box, so nothing is printed earlier.
    state = await gather_named(specs, config, arguments, None)
    boxes = [(box, load_profile(box.spec.profile)) for box in state.boxes]
    forecast = forecast_night(boxes, time.time())
    if arguments.json:
        print_json(forecast)
        return OK
    # Columns of the fallback are those of a pipe.
    width = shutil.get_terminal_size((100, 24)).columns
    print_lines(*(line.text.rstrip() for line in night_lines(forecast, width)))
    return OK


async def _print_status(
    specs: Sequence[BoxSpec], config: FleetConfig, arguments: StatusArguments
) -> int:
    printed: dict[str, StatusLine] = {}

    def print_box(box: BoxState, now: float) -> None:
        line = printed[box.spec.name] = status_line(box, assess_box(box, now), now)
        # Otherwise the line appears in the middle of the spinner's.
        with waiting_paused():
            print_lines(text_line(line))
            sys.stdout.flush()

    # A script gets the order of the fleet file; a person sees each box as soon as it has answered.
    state = await gather_named(specs, config, arguments, None if arguments.json else print_box)
    now = time.time()
    # Keep the printed lines: one per box, and an exit status that agrees with them.
    lines = [printed.get(line.box, line) for line in lines_of(state, now)]
    for line in lines:
        if arguments.json:
            write_json(encode_line(line), sys.stdout)
        elif line.box not in printed:
            print_lines(text_line(line))
    for bill in state.accounts:
        if arguments.json:
            print_json(account_line(bill, now))
        elif text := account_text(bill):
            print_lines(text)
    return exit_code(line.verdict for line in lines)


def lines_of(state: FleetState, now: float) -> list[StatusLine]:
    """Return the line of every box, in order."""
    return [status_line(box, assess_box(box, now), now) for box in state.boxes]


def exit_code(verdicts: Iterable[StatusVerdict]) -> int:
    """Return the exit code: known trouble takes precedence over unknown states."""
    words = {verdict.value for verdict in verdicts}
    # First, because a script that reads 3 would retry instead of waking a person.
    if "escalate" in words:
        return TROUBLE
    if "unknown" in words:
        return UNREACHABLE
    return OK


LEDGER = "(patrol)"
"""Key, next to the sinks, for calls made by exit status; no sink can have this name."""


def run_patrol(arguments: PatrolArguments) -> int:
    """Check once; return the exit code."""
    # A bug in rgt must not be read from the exit status as "healthy" or "escalate".
    try:
        return _run_patrol(arguments)
    except Exception as error:
        if isinstance(error, OSError) and is_lost_output(error):
            raise  # the caller handles it

        with contextlib.suppress(OSError):  # stderr may be on the same full disk
            traceback.print_exc()
            print_error(
                translate(
                    "unknown: rgt itself failed ({name}), see above", name=type(error).__name__
                )
            )
        drop_output()
        return UNKNOWN


def _run_patrol(arguments: PatrolArguments) -> int:
    try:
        config, specs = open_boxes(arguments, arguments.boxes, trusted=True)
    except NotOpened:
        return UNKNOWN

    return running.run_coroutine(_patrol_once(specs, config, arguments), boxes=len(specs))


async def _patrol_once(
    specs: Sequence[BoxSpec], config: FleetConfig, arguments: PatrolArguments
) -> int:
    known = _load_called_alerts()
    state = await gather_named(specs, config, arguments)
    now = time.time()
    lines: list[StatusLine] = []
    calls: dict[str, SentAlert] = {}
    # Tolerance between two readings of the same end time, in seconds.
    same_s = 1.0
    for box in state.boxes:
        seen, key = assess_box(box, now), key_of(box.spec)
        once = {
            a.id: SentAlert(a.level, ended_at(box, a))
            for a in seen.alerts
            if calls_for_person_once(a) and not a.muted
        }
        before = {id_: known.get(f"{key} {id_}") for id_ in once}
        told = {
            id_
            for id_, what in before.items()
            if what is not None and once[id_].at <= what.at + same_s
        }
        lines.append(status_line(box, seen, now, told))
        calls |= {f"{key} {id_}": what for id_, what in once.items()}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    for line in lines:
        if arguments.json:
            write_json(encode_line(line), sys.stdout)
        else:
            sys.stdout.write(f"{stamp} {line.verdict.value:<8} {text_line(line)}\n")
    # detect a full disk or closed reader here, where it counts as "could not tell"
    sys.stdout.flush()
    _save_called_alerts(calls, now)
    return patrol_code(line.verdict for line in lines)


def _load_called_alerts() -> Mapping[str, SentAlert]:
    """Return the alerts for which earlier patrols ended with *escalate*: ``BOX ALERT`` → when."""
    try:
        return load_alerts(alerts_path(os.environ)).told.get(LEDGER, {})
    except OSError:
        return {}  # unreadable: treat as not reported


def _save_called_alerts(calls: Mapping[str, SentAlert], now: float) -> None:
    """Save what this patrol called for, for as long as the file keeps what was sent to a sink.

    A disk error is ignored: reporting twice is better than never.
    """

    def add_calls(stored: StoredAlerts) -> StoredAlerts:
        before = stored.told.get(LEDGER, {})
        after = {**before, **calls}
        told = {**stored.told, LEDGER: after}
        if after == before:
            return stored
        return msgspec.structs.replace(stored, told=told)

    path = alerts_path(os.environ)
    with contextlib.suppress(OSError):
        stored = load_alerts(path)
        if add_calls(stored) is not stored:
            update_alerts(path, add_calls, now)


def patrol_code(verdicts: Iterable[StatusVerdict]) -> int:
    """Return the exit code: known trouble takes precedence over unknown states."""
    words = {verdict.value for verdict in verdicts}
    if "escalate" in words:
        return TROUBLE
    if "unknown" in words:
        return UNKNOWN
    return OK


class AccountLine(FrozenStruct, kw_only=True):
    """JSON line of an account for scripts. Unlike the line of a box it has no key ``box``."""

    account: str
    """Kind of the provider, as in the fleet file."""
    key: str
    """Identifies key and server: `rgt_tui.model.box.ProviderRef.account`."""
    per_hour: tuple[MoneyAmount, ...]
    """Cost of all of `unlisted` per hour, one sum per currency; empty = no price is known."""
    unlisted: tuple[UnlistedItem, ...]
    machines_age_s: float | None
    """Seconds since the machines were listed completely; None = never."""
    machines_error: str | None
    leftovers_age_s: float | None
    """The same for volumes, addresses, snapshots and similar things."""
    leftovers_error: str | None
    not_listed: tuple[str, ...] = ()
    """Things that may bill but cannot be listed: by the platform's API, or with this key."""


def account_line(bill: AccountBill, now: float) -> AccountLine:
    """Return the account's line for scripts; `now` is the client clock."""
    return AccountLine(
        account=bill.kind,
        key=bill.account,
        per_hour=bill.per_hour,
        unlisted=bill.things,
        machines_age_s=_seconds_since(bill.machines_at, now),
        machines_error=bill.machines_error,
        leftovers_age_s=_seconds_since(bill.leftovers_at, now),
        leftovers_error=bill.leftovers_error,
        not_listed=bill.gaps,
    )


def _seconds_since(at: float | None, now: float) -> float | None:
    if at is None:
        return None
    return round(max(0.0, now - at), 3)


def account_text(bill: AccountBill) -> str:
    """Return the text line of an account; empty if everything is known and in the fleet."""
    # Maximum items in the text line; further ones are counted.
    most = 4
    parts = [
        f"{describe_unlisted_item(thing)}: {thing_price(thing)}" for thing in bill.things[:most]
    ]
    more = len(bill.things) - most
    parts += [translate("{more} more (--json has them)", more=more)] if more > 0 else []
    rest = (translate("volumes, addresses and snapshots"), bill.leftovers_at, bill.leftovers_error)
    lists = [("machines", bill.machines_at, bill.machines_error), rest]
    if bill.machines_at is None and bill.leftovers_at is None:
        # Both have the same reason, such as a missing key or a platform without an API.
        lists = [
            (
                translate("machines, volumes and the like"),
                None,
                bill.machines_error or bill.leftovers_error,
            )
        ]
    for what, at, error in lists:
        if error is not None or at is None:
            if at is None:
                stands = translate("unknown")
            else:
                stands = translate("maybe incomplete")
            parts.append(f"{what}: {stands}{f' ({error})' if error else ''}")
    if not parts:
        return ""
    if bill.gaps:
        parts.append(translate("not listed: {gaps}", gaps=", ".join(bill.gaps)))
    if any(thing.what == MACHINE for thing in bill.things):
        parts.append(
            translate("rgt import --from {kind} adds machines to the fleet", kind=bill.kind)
        )
    sums = bill.per_hour
    price = " + ".join(format_money(one.value, one.currency, one.at_least) for one in sums)
    if sums:
        said = f"{price}/h"
    elif bill.things:
        said = "?"
    else:
        said = "-"
    if bill.things:
        state = "unlisted"
    else:
        state = "unknown"
    return (
        f"{bill.kind:<{NAME_WIDTH}} {state:<{STATE_WIDTH}} {pad_cells(said, 10)} "
        f"{' · '.join(parts)}"
    )
