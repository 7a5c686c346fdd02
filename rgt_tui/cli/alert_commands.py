"""``rgt alerts test`` and ``rgt mute``: try the sinks, and silence alerts for a while."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import choose_boxes, open_fleet
from rgt_tui.cli.printing import print_error, print_json, print_lines
from rgt_tui.cli.watch_arguments import AlertsArguments, MuteArguments
from rgt_tui.fleet.config import FleetConfig, FleetFileError
from rgt_tui.fleet.history.spoken_times import coming_time
from rgt_tui.health import (
    BY_ID,
    EVERYTHING,
    MARGIN_S,
    AlertMute,
    StoredAlerts,
    alerts_path,
    build_sink,
    failure_reason,
    key_of,
    load_alerts,
    mute_changes,
    mute_event,
    put_mute,
    update_alerts,
)
from rgt_tui.language import translate
from rgt_tui.model import AlertEvent, BoxSpec, SinkSettings, format_duration
from rgt_tui.store import FLEET, BoxWrites, FleetHistory, history_path


def run_alerts(arguments: AlertsArguments) -> int:
    """Send a test message to the sinks; return the exit code."""
    try:
        # Trusted only: the sinks of a cloned repository's file could send to an address of its
        # author.
        config = open_fleet(arguments, trusted=True)
        named = {sink.name: sink for sink in config.alerts.sinks}
        if not named:
            raise FleetFileError(
                translate(
                    "{path} has no [[sinks]]: alerts are shown on the screen only", path=config.path
                )
            )
        for name in arguments.sinks:
            if name not in named:
                near = get_close_matches(name, named, 1)
                if near:
                    hint = translate("did you mean {near!r}?", near=near[0])
                else:
                    hint = translate("it has: {named}", named=", ".join(named))
                raise FleetFileError(
                    translate(
                        "{path} has no sink {name!r}; {hint}",
                        path=config.path,
                        name=name,
                        hint=hint,
                    )
                )
    except FleetFileError as error:
        print_error(error)
        return USAGE
    chosen = [
        sink for name, sink in named.items() if not arguments.sinks or name in arguments.sinks
    ]
    return running.run_coroutine(_test_sinks(chosen, as_json=arguments.json))


async def _test_sinks(sinks: Sequence[SinkSettings], *, as_json: bool) -> int:
    # At the same time: a sink that hangs must not delay the test of the others by its time limit.
    problems = await asyncio.gather(*(_test_sink(sink) for sink in sinks))
    for sink, problem in zip(sinks, problems, strict=True):
        if as_json:
            body = {
                "sink": sink.name,
                "kind": sink.kind,
                "sent": problem is None,
                "problem": problem,
            }
            print_json(body)
        else:
            print_lines(f"{sink.name}: {'sent' if problem is None else f'failed: {problem}'}")
    if all(problem is None for problem in problems):
        return OK
    return FAILED


async def _test_sink(settings: SinkSettings) -> str | None:
    """Send one message; return why it was not delivered, or None."""
    # The host name, because several rgt of a team may share one channel.
    text = translate(
        "a test of the sink {name} from {socket}: nothing is wrong",
        name=settings.name,
        socket=socket.gethostname(),
    )
    event = AlertEvent(
        what="test", at=time.time(), level="info", title=translate("rgt: test"), text=text
    )
    sink = build_sink(settings, os.environ)
    try:
        # The sink's own limit comes first and has the better message; this one catches a hang
        # elsewhere.
        async with asyncio.timeout(settings.timeout_s + MARGIN_S):
            await sink.send(event)
    # after any failure, try the other sinks, and report this one
    except Exception as error:
        return failure_reason(error)
    return None


def run_mute(arguments: MuteArguments) -> int:
    """Mute, unmute, or list; return the exit code."""
    # One `now` for everything below: `_print_mute_change` finds the new mute by this very time.
    path, now = alerts_path(os.environ), time.time()
    try:
        config = open_fleet(arguments, trusted=True)
        if arguments.box is None and not arguments.list_only:
            raise FleetFileError(translate("which box? rgt mute BOX, or rgt mute --list"))
        # Without a box, which only --list allows: all boxes.
        specs = choose_boxes(config, [arguments.box] if arguments.box else [])
        if arguments.what is None:
            what = EVERYTHING
        else:
            what = _check_alert_name(arguments.what)
        if arguments.until is None:
            until = None
        else:
            until = coming_time(arguments.until, now)
    except (FleetFileError, ValueError) as error:
        print_error(error)
        return USAGE
    try:
        if arguments.list_only:
            _print_mutes(specs, load_alerts(path).mutes, now, as_json=arguments.json)
            return OK
        if arguments.off:
            seconds = 0.0
        elif arguments.until_over:
            seconds = None
        else:
            # Default duration, as for the key m on the screen.
            usual_s = 3600.0
            seconds = arguments.seconds or usual_s
        # The store takes a duration, so that its limit of 24 hours applies to both forms.
        if until is not None:
            seconds = until - now
        # Name and host together: boxes of two fleet files may have the same name.
        key = key_of(specs[0])
        # Read again under a lock by `_change_mutes`; this copy only serves to describe the change.
        before = load_alerts(path).mutes
        stored = _change_mutes(path, lambda mutes: put_mute(mutes, key, what, seconds, now), now)
    except OSError as error:
        print_error(
            translate(
                "cannot write {path}: {strerror}", path=path, strerror=error.strerror or error
            )
        )
        return FAILED
    # After the file: a failing journal must not undo a mute, which only gets a note on stderr.
    _record_mutes(config, specs[0], before, stored.mutes, now)
    _print_mute_change(specs[0], what, before, stored.mutes, now, as_json=arguments.json)
    return OK


def _record_mutes(
    config: FleetConfig,
    spec: BoxSpec,
    before: tuple[AlertMute, ...],
    after: tuple[AlertMute, ...],
    now: float,
) -> None:
    """Record changed mutes in the journal.

    If another rgt watches the box, it records them: only one process writes about a box.
    """
    said = [
        mute_event(spec.name, at, what, text)
        for key, at, what, text in mute_changes(before, after, now, now)
        if key == key_of(spec)
    ]
    path = history_path(os.environ)
    if said and path is not None:
        history = FleetHistory(path, fleet=str(config.path.absolute()))
        # Without it, an entry of a box that no rgt has watched yet would belong to no box.
        history.adopt_boxes([spec])
        history.put_batch({FLEET: BoxWrites(events=tuple(said))})
        running.run_coroutine(_close_history(history))


async def _close_history(history: FleetHistory) -> int:
    await history.close()
    for trouble in history.take_events():
        print_error(translate("not in the journal: {words}", words=trouble.text))
    return OK


def _check_alert_name(what: str) -> str:
    """Return `what`, checked to be an alert id or a kind of alert.

    Raises:
        FleetFileError: There is no such kind; the message has the nearest one.
    """
    # An alert id is KIND:PLACE (inodes:/workspace). Only the kind can be checked: the place may be
    # one of an alert that is not active yet.
    kind = what.partition(":")[0]
    if kind not in BY_ID:
        near = get_close_matches(kind, BY_ID, 1)
        if near:
            hint = translate("did you mean {near!r}?", near=near[0])
        else:
            hint = translate("there are: {by_id}", by_id=", ".join(BY_ID))
        raise FleetFileError(
            translate("no kind of alert is called {kind!r}; {hint}", kind=kind, hint=hint)
        )
    return what


def _change_mutes(
    path: Path, change: Callable[[tuple[AlertMute, ...]], tuple[AlertMute, ...]], now: float
) -> StoredAlerts:
    return update_alerts(
        path, lambda stored: msgspec.structs.replace(stored, mutes=change(stored.mutes)), now
    )


def _print_mute_change(
    spec: BoxSpec,
    what: str,
    before: tuple[AlertMute, ...],
    after: tuple[AlertMute, ...],
    now: float,
    *,
    as_json: bool,
) -> None:
    """Print what is muted or unmuted now."""
    key = key_of(spec)
    # Not a comparison with `before`: muting again replaces a mute by one that differs only in time.
    made = [mute for mute in after if (mute.box, mute.what, mute.at) == (key, what, now)]
    if made:
        _print_mutes([spec], tuple(made), now, as_json=as_json)
        return
    ended = [
        mute for mute in before if mute.box == key and mute not in after and _is_active(mute, now)
    ]
    if as_json:
        for mute in ended:
            _print_mute_row(spec.name, msgspec.structs.replace(mute, until=now), muted=False)
        if not ended:
            print_json({"box": spec.name, "what": what, "muted": False})
        return
    everything = translate("everything")
    names = ", ".join(everything if mute.what == EVERYTHING else mute.what for mute in ended)
    text = translate("{name}: nothing was muted", name=spec.name)
    if names:
        text = translate("{name}: {names} unmuted", name=spec.name, names=names)
    print_lines(text)


def _is_active(mute: AlertMute, now: float) -> bool:
    return mute.until is None or now < mute.until


def _print_mute_row(box: str, mute: AlertMute, *, muted: bool) -> None:
    body = {"box": box, "what": mute.what, "until": mute.until, "since": mute.at, "muted": muted}
    print_json(body)


def _print_mutes(
    specs: tuple[BoxSpec, ...] | list[BoxSpec],
    mutes: tuple[AlertMute, ...],
    now: float,
    *,
    as_json: bool,
) -> None:
    names = {key_of(spec): spec.name for spec in specs}
    for mute in mutes:
        if mute.box not in names or not _is_active(mute, now):
            continue
        if as_json:
            _print_mute_row(names[mute.box], mute, muted=True)
            continue
        if mute.what == EVERYTHING:
            what = "everything"
        else:
            what = mute.what
        end = translate("until it is over")
        if mute.until is not None:
            clock = time.strftime("%Y-%m-%d %H:%M", time.localtime(mute.until))
            end = translate(
                "for {until}, until {clock}", until=format_duration(mute.until - now), clock=clock
            )
        print_lines(
            translate("{names}: {what} is muted {end}", names=names[mute.box], what=what, end=end)
        )
