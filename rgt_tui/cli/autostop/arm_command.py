"""``rgt autostop``, ``rgt lease`` and ``rgt keep``: arm a box's own stop, or postpone it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.autostop.autostop_arguments import (
    ArmingArguments,
    AutostopArguments,
    KeepArguments,
    LeaseArguments,
)
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.gathering import settled_fleet
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import (
    confirm_phrase,
    format_row,
    is_interactive,
    print_error,
    print_json,
    print_lines,
    wait_indicator,
)
from rgt_tui.fleet import Fleet, GateClosed, connected_agent
from rgt_tui.fleet.autostop import ARMED, ArmedBook
from rgt_tui.fleet.autostop.arming import ArmingChoice, BoxArming, Rehearsal, UnknownProcess
from rgt_tui.fleet.autostop.autostop_verbs import SelfStopControl, ask_status, ask_story
from rgt_tui.fleet.autostop.self_stops import known_objections
from rgt_tui.gate import AuditFailed, AuditLog
from rgt_tui.gate.audit import default_path
from rgt_tui.health import describe_clock, story_lines
from rgt_tui.language import translate
from rgt_tui.model import (
    AutostopMode,
    AutostopReading,
    AutostopStatus,
    BoxSpec,
    EndAction,
    IdleHolder,
    StopEvent,
    clean_text,
    format_duration,
    format_money,
    parse_idle_condition,
    size,
    time_of_day,
)
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import BoxError, Unreachable

CANNOT_PROMPT = (
    "cannot prompt here: in a script, run it with --dry-run --json, read the result, and arm it "
    "with --confirm NAME"
)
LABEL_WIDTH = 16
UNACCEPTED = "it is not ended unless accepted (--accept): the box calls you instead"


def run_autostop(arguments: AutostopArguments) -> int:
    """Arm, show or disarm; return the exit status."""
    # argparse cannot express "only together with --idle".
    only_arming = arguments.accept or arguments.inspect or arguments.dry_run
    only_arming = only_arming or arguments.idle_if is not None
    if arguments.idle is None and only_arming:
        print_error(
            translate(
                "--accept, --idle-if, --inspect and --dry-run only work when arming: add --idle "
                "TIME"
            )
        )
        return USAGE
    if arguments.idle is None:
        return _without_arming(arguments)
    source = ""
    if arguments.idle_if is not None:
        source = "--idle-if"
    wish = ArmingChoice(
        mode=AutostopMode.IDLE,
        action=EndAction(arguments.action),
        limit_s=arguments.idle,
        inspect_s=arguments.inspect,
        # 0 = a live run always counts as work, however long it hangs.
        no_progress_s=arguments.idle_if or 0.0,
        no_progress_source=source,
        accept=tuple(arguments.accept),
    )
    return _arm_box(arguments, wish)


def run_lease(arguments: LeaseArguments) -> int:
    """Give a box a hard deadline; return the exit status."""
    wish = ArmingChoice(
        # A lease ends the box also while something runs, so it has no conditions of idleness.
        mode=AutostopMode.LEASE,
        action=EndAction(arguments.action),
        limit_s=arguments.length,
        accept=tuple(arguments.accept),
    )
    return _arm_box(arguments, wish)


def audit_log() -> AuditLog:
    """Return the person's own audit log."""
    # One log for all fleet files of a person, who pays for the boxes of each.
    return AuditLog(default_path(os.environ))


def armed_book() -> ArmedBook:
    """Return the record of armed boxes, next to the audit log."""
    return ArmedBook(default_path(os.environ).parent / ARMED)


def _without_arming(arguments: AutostopArguments) -> int:
    # An untrusted file may name another person's machine: this command acts on what it names.
    spec = open_box(arguments, trusted=True)
    if arguments.status:
        work = _report_status(arguments, spec)
    else:
        work = _disarm_box(arguments, spec)
    return running.run_on_box(spec.name, work)


async def _report_status(arguments: AutostopArguments, spec: BoxSpec) -> int:
    with wait_indicator(translate("asking {name} …", name=spec.name)):
        async with connected_agent(spec, accept_new_host_keys=arguments.accept_new_host_key) as way:
            status = await ask_status(way)
            # A second request: the status is about now, the story also about stops before a
            # restart.
            story = await ask_story(way)
    if arguments.json:
        print_json({**status_body(spec.name, status, story), "exit": OK})
    else:
        show_status(spec.name, status, story)
    return OK


async def _disarm_box(arguments: AutostopArguments, spec: BoxSpec) -> int:
    # A billing action as well: a disarmed box bills until a person stops it.
    if arguments.readonly:
        print_error(translate("rgt was started with --readonly: it cannot disarm a box"))
        return FAILED
    keeping = SelfStopControl(spec, audit_log(), armed_book(), clock=time.time)
    try:
        with wait_indicator(translate("asking {name} …", name=spec.name)):
            async with connected_agent(
                spec, accept_new_host_keys=arguments.accept_new_host_key
            ) as way:
                status = await keeping.disarm_box(way)
    # An action that cannot be recorded is not sent; the other errors are handled by `run_on_box`.
    except AuditFailed as failed:
        print_error(translate("{failed}. Nothing was sent.", failed=failed))
        return FAILED
    if arguments.json:
        print_json({**status_body(spec.name, status, ()), "exit": OK})
    else:
        print_lines(
            translate(
                "{name}: disarmed: it no longer stops itself and is still billed", name=spec.name
            )
        )
    return OK


def _arm_box(arguments: ArmingArguments, wish: ArmingChoice) -> int:
    # The empty string counts as typed, and the gate will refuse it as a wrong name.
    typed = arguments.confirm is not None
    if arguments.dry_run and typed:
        print_error(translate("--dry-run arms nothing, so there is nothing to confirm"))
        return USAGE
    # Before anything is asked: a script must not wait for a prompt without a person.
    if not (typed or arguments.dry_run) and not is_interactive():
        print_error(CANNOT_PROMPT)
        return USAGE
    spec = open_box(arguments, trusted=True)
    if wish.mode is AutostopMode.IDLE and spec.idle_if and not wish.no_progress_source:
        wish = msgspec.structs.replace(
            wish,
            no_progress_s=parse_idle_condition(spec.idle_if),
            no_progress_source=translate("idle_if of the fleet file"),
        )
    readonly = arguments.readonly
    known = tuple(
        known_objections(spec, load_profile(spec.profile), wish.action, readonly=readonly)
    )
    if known:  # already refused without asking the box
        return _print_refusal(arguments, spec, wish, known, None, FAILED)
    return running.run_on_box(spec.name, _start_rehearsal(arguments, spec, wish))


async def _start_rehearsal(arguments: ArmingArguments, spec: BoxSpec, wish: ArmingChoice) -> int:
    readonly = arguments.readonly
    try:
        # A fleet, not only a connection: what the park keeps and loses also depends on the
        # provider's answer and on the box's list of results.
        async with settled_fleet(
            spec,
            translate("asking {name} and its provider …", name=spec.name),
            arguments.timeout,
            accept_new_host_keys=arguments.accept_new_host_key,
            readonly=readonly,
        ) as fleet:
            arming = BoxArming(fleet, audit_log(), armed_book(), readonly=readonly)
            return await _rehearse_and_arm(arguments, fleet, arming, spec, wish)
    # A mistake in --accept, not a state of the box: hence the status of a wrong command line.
    except UnknownProcess as error:
        print_error(f"{spec.name}: {error}")
        return USAGE
    except BoxError as error:
        if isinstance(error, Unreachable):
            code = UNREACHABLE
        else:
            code = FAILED
        return _print_refusal(arguments, spec, wish, (str(error),), None, code)


async def _rehearse_and_arm(
    arguments: ArmingArguments, fleet: Fleet, arming: BoxArming, spec: BoxSpec, wish: ArmingChoice
) -> int:
    found = await arming.rehearse_arming(spec, wish)
    if found.reasons:
        return _print_refusal(arguments, spec, wish, found.reasons, found, FAILED)
    if arguments.dry_run:
        return _print_rehearsal(arguments, found)
    typed = arguments.confirm
    if typed is None:
        show_rehearsal(found, fleet.now())
        # The name may contain characters that a terminal obeys; the original is compared.
        typed, shown = spec.name, clean_text(spec.name)
        if not confirm_phrase(
            typed, translate('type "{shown}" to arm it, anything else to cancel: ', shown=shown)
        ):
            print_error(translate("nothing was armed"))
            return FAILED
    try:
        # The box proves again that it may stop itself; the shown proof may be minutes old.
        answer = await arming.arm_box(found, typed)
    # Certain refusals: nothing was sent. A lost connection below is not certain.
    except (GateClosed, AuditFailed) as closed:
        if isinstance(closed, GateClosed):
            reasons = closed.reasons
        else:
            reasons = (translate("{closed}. Nothing was sent.", closed=closed),)
        return _print_refusal(arguments, spec, wish, reasons, found, FAILED)
    except BoxError as error:
        # The connection broke after the request was sent.
        why = translate(
            "{error}; unknown whether it is armed: rgt autostop {name} --status",
            error=error,
            name=spec.name,
        )
        return _print_refusal(arguments, spec, wish, (why,), found, UNREACHABLE)
    if arguments.json:
        body = {**body_of(found, ok=True), "status": answer.status, "armed": True, "exit": OK}
        print_json(body)
    else:
        show_status(spec.name, answer.status, ())
    return OK


def _print_rehearsal(arguments: ArmingArguments, found: Rehearsal) -> int:
    if arguments.json:
        print_json({**body_of(found, ok=True), "armed": False, "exit": OK})
    else:
        show_rehearsal(found, time.time())
    return OK


def _print_refusal(
    arguments: ArmingArguments,
    spec: BoxSpec,
    wish: ArmingChoice,
    reasons: tuple[str, ...],
    found: Rehearsal | None,
    code: int,
) -> int:
    if arguments.json:
        bare = {
            "ok": False,
            "reasons": reasons,
            "box": spec.name,
            "mode": wish.mode,
            "action": wish.action,
        }
        if found is None:
            body = bare
        else:
            body = {**body_of(found, ok=False), "reasons": reasons}
        print_json({**body, "armed": False, "exit": code})
        return code
    # Without the box's answer there is nothing to show but the reasons.
    if found is not None and found.answer is not None:
        show_rehearsal(found, time.time())
    for reason in reasons:
        print_error(reason)
    print_error(translate("{name}: nothing was armed", name=spec.name))
    return code


def run_keep(arguments: KeepArguments) -> int:
    """Postpone the stop; return the exit status."""
    spec = open_box(arguments, trusted=True)
    return running.run_on_box(spec.name, _postpone_stop(arguments, spec))


async def _postpone_stop(arguments: KeepArguments, spec: BoxSpec) -> int:
    keeping = SelfStopControl(spec, audit_log(), armed_book(), clock=time.time)
    try:
        with wait_indicator(translate("asking {name} …", name=spec.name)):
            async with connected_agent(
                spec, accept_new_host_keys=arguments.accept_new_host_key
            ) as way:
                status = await keeping.postpone(way, arguments.length)
    except (GateClosed, AuditFailed) as closed:
        if isinstance(closed, GateClosed):
            reasons = closed.reasons
        else:
            reasons = (translate("{closed}. Nothing was sent.", closed=closed),)
        if arguments.json:
            body = {"ok": False, "box": spec.name, "reasons": reasons, "exit": FAILED}
            print_json(body)
        else:
            for reason in reasons:
                print_error(reason)
        return FAILED
    if arguments.json:
        print_json({**status_body(spec.name, status, ()), "exit": OK})
    else:
        show_status(spec.name, status, ())
    return OK


# What ``rgt autostop`` and ``rgt lease`` print: what arming would mean, and the status of an armed
# box.


def body_of(found: Rehearsal, *, ok: bool) -> dict[str, Any]:
    """Return the JSON body for scripts before anything is armed."""
    review, request = found.review, found.request
    if found.answer is not None:
        status = found.answer.status
    else:
        status = AutostopStatus()
    return {
        "ok": ok,
        "reasons": found.reasons,
        "box": found.spec.name,
        "mode": found.wish.mode,
        "action": found.wish.action,
        "limit_s": found.wish.limit_s,
        "no_progress_s": found.wish.no_progress_s,
        "no_progress_source": found.wish.no_progress_source,
        "instance": request.instance if request is not None else "",
        "boot": request.boot if request is not None else "",
        "key": status.key,
        "would_block": status.why,
        "holders": status.holders,
        "saving": status.saving,
        "unsaving": status.unsaving,
        "kept": review.kept if review is not None else (),
        "lost": review.lost if review is not None else (),
        "only_copies": found.erased_results,
        "keeps_billing": review.keeps_billing if review is not None else (),
        "promises": found.promise_lines,
        "status": status,
    }


def show_rehearsal(found: Rehearsal, now: float) -> None:
    """Print what arming would mean, before the person types the name."""
    for title, texts in _list_sections(found):
        # Only the first line of a section has its title.
        for text in texts:
            sys.stdout.write(format_row([(title, LABEL_WIDTH, "dim")], text))
            title = ""


def _list_sections(found: Rehearsal) -> Iterator[tuple[str, Sequence[str]]]:
    wish, review, request = found.wish, found.review, found.request
    if found.answer is not None:
        status = found.answer.status
    else:
        # The box was not asked, because known objections were enough; nothing is known of it.
        status = AutostopStatus()
    if wish.mode is AutostopMode.IDLE:
        when = translate("when idle for {limit_s}", limit_s=format_duration(wish.limit_s))
    else:
        when = f"after {format_duration(wish.limit_s)}"
    if wish.action is EndAction.PARK:
        does = translate("parks itself")
    else:
        # `ask` works on every platform, so no label of the platform's stop belongs here.
        does = translate("notifies you and stops nothing,")
    label = ""
    if review is not None and wish.action is EndAction.PARK:
        label = f" ({review.native_label})"
    yield found.spec.name, (f"{does}{label} {when}",)
    if request is not None:
        yield (
            "for",
            (
                translate(
                    "instance {instance}, boot {boot}, and no other",
                    instance=request.instance or "none",
                    boot=request.boot,
                ),
            ),
        )
        yield (
            "warns",
            (
                translate(
                    "{warn_s} before; rgt keep {name} 2h puts it off",
                    warn_s=format_duration(request.warn_s),
                    name=found.spec.name,
                ),
            ),
        )
    if wish.action is EndAction.ASK:
        yield (
            "notifies",
            (
                translate(
                    "the address of rgt notify {name}; without one, only rgt and terminals there "
                    "show it",
                    name=found.spec.name,
                ),
            ),
        )
    yield "holds", found.promise_lines
    if wish.action is EndAction.PARK:
        if status.key is not None:
            proof = status.key.text
        else:
            # The box was not asked to prove it: name what it would have to try.
            proof = translate("not asked; it would be {key_proof}", key_proof=found.key_proof)
        yield translate("its own key"), (found.key_words, f"proof: {proof}")
    # A lease does not wait for idleness, so it has no such rows.
    if found.answer is not None and wish.mode is AutostopMode.IDLE:
        if wish.no_progress_s:
            limit = format_duration(wish.no_progress_s)
            yield (
                translate("counts as idle"),
                (
                    translate(
                        "a live run in whose log, results and use nothing advanced for {limit} "
                        "({source})",
                        limit=limit,
                        source=wish.no_progress_source,
                    ),
                ),
            )
        yield translate("blocks it now"), status.why or (translate("nothing: it is idle"),)
        yield (
            translate("holds memory"),
            tuple(
                _describe_holder(one, request.accept_holders if request else ())
                for one in status.holders
            ),
        )
    # Only a lease sends SIGTERM to runs; an idle box has none.
    if wish.mode is AutostopMode.LEASE and wish.action is EndAction.PARK:
        yield translate("saves at SIGTERM"), status.saving or (translate("no run is known to"),)
        yield (
            translate("does not"),
            tuple(
                f"{one}: accepted"
                if one in wish.accept
                else translate(
                    "{one}, as far as known: {unaccepted}",
                    one=one,
                    unaccepted=translate(UNACCEPTED),
                )
                for one in status.unsaving
            ),
        )
    if review is not None and wish.action is EndAction.PARK:
        yield (
            translate("lost by the park"),
            review.lost or (translate("nothing, according to the profile"),),
        )
        yield translate("only copy"), found.erased_results
        yield "kept", review.kept or ("nothing",)
        yield translate("keeps billing"), review.keeps_billing or (translate("nothing found"),)
        yield translate("then without you"), review.dangers
        # What the box costs if nothing is armed: the figure to compare the losses above with.
        now = f"{format_money(review.per_hour, review.currency, review.at_least)}/h"
        yield translate("costs now"), (now,)


def _describe_holder(one: IdleHolder, accepted: Sequence[object]) -> str:
    if one.bytes is None:
        held = ""
    else:
        held = f", {size(one.bytes)}"
    if one.id in accepted:
        word = "accepted"
    else:
        word = translate(
            "keeps it from being idle; --accept {pid} says that it may end", pid=one.pid
        )
    return f"pid {one.pid} {one.cmd}{held}: {word}"


def status_body(box: str, status: AutostopStatus, story: Sequence[StopEvent]) -> dict[str, Any]:
    """Return the JSON body for scripts about a box's own stop."""
    # The status has the name under which the box was armed; it has none if it is not armed.
    return {
        "ok": True,
        **msgspec.to_builtins(status),
        "box": box,
        "story": msgspec.to_builtins(story),
    }


def show_status(box: str, status: AutostopStatus, story: Sequence[StopEvent]) -> None:
    """Print the status of a box's own stop, and its newest events."""
    shown = [
        one
        # Idle stop and lease are armed independently of each other, and each has a clock.
        for one in (status, status.lease)
        if one is not None and (one.armed or one.state != "none")
    ]
    if not shown:
        print_lines(translate("{box}: not armed: it does not stop itself", box=box))
    for one in shown:
        print_lines(f"{box}: {describe_clock(reading_of(one))}")
        if one.boot:
            if one.since is None:
                since = ""
            else:
                since = f", since {time_of_day(one.since)}"
            _print_line(
                "for",
                translate(
                    "instance {instance}, boot {boot}{since}",
                    instance=one.instance or "none",
                    boot=one.boot,
                    since=since,
                ),
            )
        for run in one.no_progress:
            _print_line(translate("counts as idle"), run)
        for why in one.why:
            _print_line(translate("blocks it now"), why)
        for holder in one.holders:
            _print_line(translate("holds memory"), _describe_holder(holder, ()))
        for run in one.unsaving:
            _print_line(translate("does not save"), run)
        if one.key is not None:
            _print_line(translate("its own key"), one.key.text)
        # The story, where it is known, contains the last event.
        if one.last is not None and not story:
            _print_line("last", f"{time_of_day(one.last.at)} {one.last.event}: {one.last.text}")
    for line in story_lines(tuple(story)):
        print_lines(line)


def _print_line(title: str, text: str) -> None:
    sys.stdout.write(format_row([(title, LABEL_WIDTH, "dim")], text))


def reading_of(status: AutostopStatus) -> AutostopReading:
    """Return a status in the form of a sample's reading."""
    return AutostopReading(
        mode=status.mode or AutostopMode.IDLE,
        action=status.action or EndAction.PARK,
        state=status.state,
        idle_s=status.idle_s,
        unknown_s=status.unknown_s,
        limit_s=status.limit_s,
        stops_in_s=status.stops_in_s,
        kept_until=status.kept_until,
        why=status.why[:3],
        # Three each, as in a sample, so that both forms give the same sentence.
        no_progress=status.no_progress[:3],
    )
