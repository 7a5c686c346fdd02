"""``rgt down``: stop billing of one box, with the same evidence, gate and journal as the dialog."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TextIO

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNCONFIRMED, UNREACHABLE, USAGE
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
from rgt_tui.cli.teardown.auditing import print_receipt
from rgt_tui.cli.teardown.money_arguments import DownArguments
from rgt_tui.fleet import ActionTerms, Fleet, GateClosed
from rgt_tui.gate import RESULTS
from rgt_tui.language import translate
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    BoxSpec,
    EvidenceItem,
    LinkState,
    StopPhase,
    StopProgress,
    clean_text,
    format_duration,
    format_money,
    size,
    steady_time,
)
from rgt_tui.profiles import (
    action_for,
    describe_check_months,
    describe_missing_verb,
    list_manual_steps,
    list_old_facts,
)


def run_down(arguments: DownArguments) -> int:
    """Review, ask, send, follow; return the exit status."""
    problem = _find_contradiction(arguments)
    if problem:
        print_error(problem)
        return USAGE
    # A box of an untrusted file has no provider, and its identity cannot be proved.
    spec = open_box(arguments, trusted=True)
    if arguments.done:
        return running.run_on_box(spec.name, _confirm_done(arguments, spec))
    if arguments.verb is None:
        print_error(
            translate(
                "choose an action for {name}: --park stops it and keeps its disks, --destroy "
                "deletes it",
                name=spec.name,
            )
        )
        return USAGE
    return running.run_on_box(
        spec.name, _stop_billing(arguments, spec, BillingVerb(arguments.verb))
    )


def _find_contradiction(arguments: DownArguments) -> str:
    """Return why the options contradict each other; empty if they do not."""
    # It only records the person's word, so consent and evidence have nothing to apply to.
    if arguments.done:
        others = ("dry_run", "confirm", "evidence", "forfeit", "ignore", "unprotect")
        extra = any(getattr(arguments, name) for name in others)
        if extra:
            return translate("--done sends nothing and takes no other option")
        return ""
    if (arguments.confirm is None) != (arguments.evidence is None):
        return translate(
            "--confirm and --evidence are used together: --dry-run --json prints the digest"
        )
    if arguments.dry_run and arguments.confirm is not None:
        return translate("--dry-run sends nothing, so there is nothing to confirm")
    if arguments.confirm is None and not arguments.dry_run and not is_interactive():
        return translate(
            "cannot prompt here: in a script, run it with --dry-run --json, read the result, and "
            "confirm it with --confirm NAME --evidence DIGEST"
        )
    return ""


async def _stop_billing(arguments: DownArguments, spec: BoxSpec, verb: BillingVerb) -> int:
    # The digest of a dry run is valid for 60 s before the order, not before the slow readings
    # below.
    ordered_at = steady_time()
    async with _settled_fleet(
        arguments, spec, translate("asking {name} and its provider …", name=spec.name)
    ) as fleet:
        return await _review_and_send(arguments, fleet, spec, verb, ordered_at)


def _settled_fleet(
    arguments: DownArguments, spec: BoxSpec, doing: str
) -> AbstractAsyncContextManager[Fleet]:
    return settled_fleet(
        spec,
        doing,
        arguments.timeout,
        accept_new_host_keys=arguments.accept_new_host_key,
        readonly=arguments.readonly,
    )


async def _confirm_done(arguments: DownArguments, spec: BoxSpec) -> int:
    """Settle a stop on the console by the person's confirmation, unless the box still answers."""
    try:
        async with _settled_fleet(
            arguments, spec, translate("checking whether {name} still answers …", name=spec.name)
        ) as fleet:
            # Refused while the box answers: a click on the wrong row of a console would be recorded
            # as done.
            step = await fleet.confirm_done(spec.name)
            if arguments.json:
                receipt = await fleet.find_receipt(spec.name)
                print_json(
                    {"ok": True, "exit": OK, "box": spec.name, "steps": [step], "receipt": receipt}
                )
            else:
                _print_step(step)
                await _print_receipt(fleet, spec.name)
            return OK
    except GateClosed as closed:
        if arguments.json:
            print_json({"ok": False, "exit": FAILED, "box": spec.name, "reasons": closed.reasons})
        for reason in () if arguments.json else closed.reasons:
            print_error(reason)
        return FAILED


def _print_step(step: StopProgress) -> None:
    sys.stdout.write(format_row([(translate(step.phase), 11, "")], step.text))


async def _print_receipt(fleet: Fleet, box: str) -> None:
    receipt = await fleet.find_receipt(box)
    if receipt is not None:
        print_lines("")
        print_receipt(receipt, as_json=False)
        print_lines(
            "", translate("rgt receipt {box} prints this again, --markdown as a page", box=box)
        )


async def _review_and_send(
    arguments: DownArguments,
    fleet: Fleet,
    spec: BoxSpec,
    verb: BillingVerb,
    ordered_at: float | None = None,
) -> int:
    given = ActionTerms(
        forfeits=frozenset(arguments.forfeit),
        ignored=frozenset(arguments.ignore),
        unprotect=arguments.unprotect,
    )
    try:
        with wait_indicator(
            translate("{name}: listing files that could be lost …", name=spec.name)
        ):
            # No patience limit: on a busy box the list of results takes longer than a dialog would
            # wait.
            review = await fleet.review_action(spec.name, verb, patience=None, **given)
    except GateClosed as closed:
        profile, reasons = fleet.profile_of(spec.name), closed.reasons
        # Without a provider, the person gets the steps for the console instead of a bare refusal.
        if spec.provider is None:
            action = action_for(profile, verb)
            told = tuple(f"{translate(label)}: {text}" for label, text in list_manual_steps(action))
            if told:
                old = (
                    translate("old facts: {one}", one=one)
                    for one in list_old_facts(profile, action, time.time())
                )
                told = (
                    *told,
                    f"{translate('facts')}: {describe_check_months(profile, action)}",
                    *old,
                )
            reasons = (*reasons, *(told or (describe_missing_verb(profile, verb),)))
        return _print_refusal(arguments, spec, verb, reasons, None, FAILED)
    # A misspelt --forfeit would leave the item blocking, with nothing that says why.
    unknown = sorted(
        key for key in given["forfeits"] | given["ignored"] if _is_unknown(key, review)
    )
    # With a digest the key was valid in the dry run, and the gate will report what changed.
    if unknown and arguments.evidence is None:
        known = ", ".join(item.key for item in review.items if item.is_blocking or item.forfeited)
        print_error(
            translate(
                "{name}: the evidence has no item {unknown}; there are: {known}",
                name=spec.name,
                unknown=", ".join(unknown),
                known=known,
            )
        )
        return USAGE
    if review.refusals:
        # With 3 a script tries again; with 1 the facts are against it.
        away = _is_unreachable(fleet, spec)
        return _print_refusal(
            arguments, spec, verb, review.refusals, review, UNREACHABLE if away else FAILED
        )
    if arguments.dry_run:
        if arguments.json:
            print_json({**_build_json_body(review, True, ()), "exit": OK})
        else:
            _print_review(review)
        return OK
    typed = arguments.confirm
    if typed is None:
        # The person must see what the phrase means also when stdout is for a script.
        _print_review(review, sys.stderr if arguments.json else sys.stdout)
        # With forfeits the phrase is longer than the name; it may contain characters of the fleet
        # file.
        typed, shown = review.phrase, clean_text(review.phrase)
        does, undone = translate("send it"), translate("nothing was sent")
        if review.by_hand:
            does, undone = translate("continue to your click"), translate("nothing was begun")
        if not confirm_phrase(
            typed,
            translate(
                'type "{shown}" to {does}, anything else to cancel: ', shown=shown, does=does
            ),
        ):
            print_error(undone)
            if arguments.json:
                print_json(
                    {
                        **_build_json_body(review, False, (undone,)),
                        "exit": FAILED,
                    }
                )
            return FAILED
    return await _execute_stop(arguments, fleet, review, typed, given, ordered_at)


def _is_unknown(key: str, review: ActionReview) -> bool:
    """Return whether no item has this key, although all items that could have it were listed."""
    unlisted = any(item.key == RESULTS and not item.ok for item in review.items)
    # The box did not list its results, so the key may be right.
    if unlisted and key.startswith(f"{RESULTS}:"):
        return False
    return key not in {item.key for item in review.items}


async def end_fresh_box(spec: BoxSpec, accept_new_host_keys: bool, readonly: bool) -> int:
    """Destroy a new box; the person confirms by name that its blocking evidence is given up.

    Args:
        spec: The box.
        accept_new_host_keys: Write the key of an unknown host to known_hosts.
        readonly: Refuse the action.
    """
    try:
        # Maximum wait for a new machine that does not answer, before it is destroyed.
        fresh_seconds = 20.0
        async with settled_fleet(
            spec,
            translate("asking {name} and its provider …", name=spec.name),
            fresh_seconds,
            accept_new_host_keys=accept_new_host_keys,
            readonly=readonly,
        ) as fleet:
            review = await fleet.review_action(spec.name, BillingVerb.DESTROY, patience=None)
            # A box that was rented a minute ago has nothing to lose, but the person still types the
            # phrase, which says how many items are given up.
            given = [item.key for item in review.items if item.is_blocking and item.forfeitable]
            arguments = DownArguments(forfeit=given)
            return await _review_and_send(arguments, fleet, spec, BillingVerb.DESTROY)
    # The evidence is gathered again before the call, and may have changed since the review.
    except GateClosed as closed:
        for reason in closed.reasons:
            print_error(reason)
        return FAILED


def _is_unreachable(fleet: Fleet, spec: BoxSpec) -> bool:
    """Return whether the box or its provider could not be asked, so that refusals may be wrong."""
    # None: it is gone from the file, which another rgt may have done meanwhile.
    box = fleet.state.find_box(spec.name)
    return box is None or box.link is not LinkState.LIVE or box.meter.error is not None


async def _execute_stop(
    arguments: DownArguments,
    fleet: Fleet,
    review: ActionReview,
    typed: str,
    given: ActionTerms,
    ordered_at: float | None,
) -> int:
    # All of them: the exit status depends on how far it got.
    steps: list[StopProgress] = []
    call = fleet.execute_action(
        review.box,
        review.verb,
        typed,
        evidence_digest=arguments.evidence,
        ordered_at=ordered_at,
        **given,
    )
    try:
        async for step in call:
            steps.append(step)
            if not arguments.json:
                _print_step(step)
                sys.stdout.flush()
    except GateClosed as closed:
        return _print_refusal(arguments, None, review.verb, closed.reasons, review, FAILED)
    code = status_of(steps)
    if arguments.json:
        receipt = await fleet.find_receipt(review.box)
        body = {
            **_build_json_body(review, code == OK, ()),
            "exit": code,
            "steps": steps,
            "receipt": receipt,
        }
        print_json(body)
    elif code == OK:
        await _print_receipt(fleet, review.box)
    # Not an error: from here on only the person can act.
    if StopPhase.YOURS in [step.phase for step in steps]:
        print_error(
            translate(
                "{box}: open until you confirm that it is done: rgt down {box} --done",
                box=review.box,
            )
        )
    elif code == UNCONFIRMED:
        print_error(
            translate(
                "{box}: sent, and not confirmed; rgt audit --box {box} shows its state",
                box=review.box,
            )
        )
    return code


def status_of(steps: Sequence[StopProgress]) -> int:
    """Return the exit status of an action; a sent but unconfirmed one is never a plain failure."""
    phases = [step.phase for step in steps]
    if StopPhase.METER_OFF in phases:
        return OK
    # Any step beyond the failure means that a call may have gone out.
    if set(phases) - {StopPhase.FAILED}:
        return UNCONFIRMED
    return FAILED


def _print_refusal(
    arguments: DownArguments,
    spec: BoxSpec | None,
    verb: BillingVerb,
    reasons: tuple[str, ...],
    review: ActionReview | None,
    code: int,
) -> int:
    if arguments.json:
        if spec is not None:
            name = spec.name
        elif review is not None:
            name = review.box
        else:
            name = ""
        if review is None:
            body = {
                "ok": False,
                "reasons": reasons,
                "digest": "",
                "request": "",
                "box": name,
                "verb": verb,
            }
        else:
            body = _build_json_body(review, False, reasons)
        print_json({**body, "exit": code})
        return code
    if review is not None:
        _print_review(review)
    for reason in reasons:
        print_error(reason)
    if review is not None:
        for line in _list_remedies(review):
            print_error(line)
    print_error(translate("nothing was sent"))
    return code


def _list_remedies(review: ActionReview) -> list[str]:
    """Return what a person can do about the blocking items, as lines."""
    # The name always blocks until it is typed.
    blocking = [item for item in review.items if item.is_blocking and item.kind != "name"]
    lines = []
    if any(item.forfeitable for item in blocking):
        firm = [item.key for item in blocking if not item.forfeitable]
        but = ""
        if firm:
            but = translate(" (all that block but {firm})", firm=", ".join(firm))
        lines.append(translate("to give up an item by name: --forfeit KEY{but}", but=but))
    if any(item.ignorable for item in blocking):
        lines.append(translate("unclaimed files that are not results: --ignore KEY"))
    return lines


def _build_json_body(review: ActionReview, ok: bool, reasons: tuple[str, ...]) -> dict[str, object]:
    """Return the JSON body for scripts; `digest` covers facts but not ages.

    So a digest stays valid while nothing changes.
    """
    return {
        "ok": ok,
        "reasons": reasons,
        "digest": review.digest,
        "request": review.will_send,
        "box": review.box,
        "verb": review.verb,
        "instance": review.instance,
        "level": review.level,
        "phrase": review.phrase,
        "unprotect": review.unprotect,
        "lost": review.lost,
        "kept": review.kept,
        "keeps_billing": review.keeps_billing,
        "per_hour": review.per_hour,
        "at_least": review.at_least,
        "spent": review.spent,
        "spent_at_least": review.spent_at_least,
        "spent_estimated": review.spent_estimated,
        "currency": review.currency,
        "first": review.first,
        "note": review.note,
        "how": review.how,
        "dangers": review.dangers,
        "checked": review.checked,
        "outdated": review.outdated,
        "items": [
            # Ages are shown, and not part of the digest: they change with every second.
            {**msgspec.structs.asdict(item), "age_s": review.item_age_s(item, review.at)}
            for item in review.items
        ],
    }


def _print_review(review: ActionReview, out: TextIO | None = None) -> None:
    """Print the review for a person, a line per item; `out` None = stdout."""
    out = sys.stdout if out is None else out
    name = translate(
        "{verb} {box} ({native_label}), instance {instance}",
        verb=translate(review.verb),
        box=review.box,
        native_label=review.native_label,
        instance=review.instance,
    )
    if review.by_hand:
        says = translate("seen from here:")
    else:
        says = translate("from the provider")
    print_lines(f"{name}: {says} {review.status}", "", out=out)
    now = f"{format_money(review.per_hour, review.currency, review.at_least)}/h"
    spent = format_money(
        review.spent, review.currency, review.spent_at_least, estimated=review.spent_estimated
    )
    so_far = translate("{spent} so far", spent=spent)
    for title, texts in (
        (translate("now"), (f"{now}, {so_far}",)),
        *(
            (
                (
                    translate("first"),
                    (translate("{first} (rgt pull {box})", first=review.first, box=review.box),),
                ),
            )
            if review.first
            else ()
        ),
        (translate("lost"), review.lost),
        (translate("kept"), review.kept),
        (translate("keeps billing"), review.keeps_billing),
        *(((translate("without you"), review.dangers),) if review.dangers else ()),
        *(((translate("note"), (review.note,)),) if review.note else ()),
        *(((translate("facts"), (review.checked,)),) if review.checked else ()),
        *(((translate("old facts"), review.outdated),) if review.outdated else ()),
    ):
        # "nothing found": lists of platforms may lack something that bills.
        if texts is review.keeps_billing:
            nothing = translate("nothing found")
        else:
            nothing = translate("nothing")
        for number, text in enumerate(texts or (nothing,)):
            label = title if number == 0 else ""
            out.write(format_row([(label, 13, "dim")], text))
    out.write("\n")
    # Blocking ones first: on a small screen the rest scrolls away.
    for item in sorted(review.items, key=lambda item: not item.is_blocking):
        if item.kind != "name":
            out.write(_format_item(review, item))
    out.write("\n" + format_row([(translate("will send"), 13, "dim")], review.will_send))
    title = translate("or by hand")
    for way in review.how:
        out.write(format_row([(title, 13, "dim")], way))
        title = ""


def _format_item(review: ActionReview, item: EvidenceItem) -> str:
    """Return one line of evidence: its state, age, key and text, and what would be lost."""
    state = translate("ok")
    if item.ok and item.doubt:
        state = translate("doubt")
    elif item.forfeited:
        state = translate("given up")
    elif not item.ok:
        state = translate("blocks")
    lost = ""
    if item.bytes and not item.ok:
        lost = f" ({size(item.bytes)})"
    cells = [
        (state, 8, "bold" if item.is_blocking else "dim"),
        (format_duration(review.item_age_s(item, review.at)), 8, "dim"),
        (item.key, 24, ""),
    ]
    return format_row(cells, item.text + lost)
