"""Receipts of billing actions: what ended, when, at what cost, where results are, what still bills.

A receipt is written before the call, from the evidence behind the permit, and completed when the
outcome is known, because a machine that is gone cannot be queried. It is not evidence, and no
decision depends on it; the audit log is the record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.gate.audit import find_user_and_host
from rgt_tui.gate.decision import facts_digest
from rgt_tui.gate.evidence import Consent, Situation, choose_collected_results, find_storage_tiers
from rgt_tui.gate.journal import ActionState
from rgt_tui.gate.roster import list_protections
from rgt_tui.language import record_text, show_recorded, translate
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    BoxState,
    Evidence,
    FrozenStruct,
    MoneyAmount,
    Profile,
    ResultGroup,
    format_duration,
    format_money,
    format_sums,
    how_many,
    moment,
    pct,
    size,
)
from rgt_tui.profiles import action_for, compute_percent, how_ended, list_kept_charges, prices

RECEIPTS = "receipts"
"""Name of its directory, next to the audit log."""
MOST_BYTES = 16 << 20
RESULT_FATES = {
    "copy": "pulled and verified",
    "storage": "on storage that stays",
    "durable": "verified durable copy",
    "ignored": "no result, confirmed by you",
    "lost": "given up",
}
"""What happened to a directory, in words."""


class KeptResults(FrozenStruct, kw_only=True, omit_defaults=True):
    """A directory of results on the machine, and what is left of it."""

    path: str
    """Path on the machine."""
    owner: str = ""
    files: int = 0
    bytes: int = 0
    by: str = ""
    """A key of `RESULT_FATES`."""
    where: str = ""
    """The directory of the pulled copy."""
    sha256: str = ""
    """`rgt_tui.model.evidence.CopyProof.sha256` of the copy."""
    checkpoints: int = 0
    """Number of checkpoints in the copy that loaded successfully."""


class RunReceipt(FrozenStruct, kw_only=True, omit_defaults=True):
    """One run of the machine, as last seen."""

    name: str
    steps: str
    """How far it came, with its unit: ``step 800 of 2,400``."""
    best: float | None = None
    """Its best loss; None = unknown."""
    ended: str = ""
    """Its last known state."""
    copy: str = ""
    """What happened to its results, in words."""
    sha256: str = ""
    """Digest of the pulled copy."""


class Receipt(FrozenStruct, kw_only=True, omit_defaults=True):
    """One billing action."""

    action: str
    """Its id in the journal."""
    box: str
    verb: BillingVerb
    label: str
    """The platform's word for the verb."""
    platform: str
    instance: str
    who: str
    begun_at: float
    """Client clock, Unix time."""
    call: str
    """The call that was sent, or what a person was asked to click."""
    state: ActionState
    ended_at: float | None = None
    said: str = ""
    """The provider's answer, or the person's report."""
    per_hour: float | None = None
    """Price per hour before the action."""
    at_least: bool = False
    spent: float | None = None
    spent_at_least: bool = False
    currency: str = "USD"
    started_at: float | None = None
    """When the machine was started, or created, as reported by the provider."""
    watched: tuple[MoneyAmount, ...] = ()
    """Costs since then while an rgt was watching."""
    idle: tuple[MoneyAmount, ...] = ()
    """The part of `watched` while no run was alive."""
    runs: tuple[RunReceipt, ...] = ()
    kept: tuple[KeptResults, ...] = ()
    given_up: tuple[str, ...] = ()
    keeps_billing: tuple[str, ...] = ()
    still_per_hour: float | None = None
    """Price per hour of the storage that a park keeps; None = unknown."""
    to_end: str = ""
    """How a person ends what keeps billing."""
    evidence: str = ""
    """SHA-256 of the evidence behind the call."""
    audit: str = ""
    """SHA-256 of the line written to the audit log before the call."""

    @property
    def is_settled(self) -> bool:
        """Whether the requested outcome is known to have happened."""
        return self.state in (ActionState.OFF, ActionState.CONFIRMED)


def receipt_of(
    given: Situation,
    evidence: Evidence,
    consent: Consent,
    review: ActionReview,
    *,
    action: str,
    call: str,
    audit: str,
) -> Receipt:
    """Return the receipt of an action that is about to be sent.

    Args:
        given: What the gate judged.
        evidence: Its evidence.
        consent: What the person gave up and ignored.
        review: What the person was shown.
        action: Its id in the journal.
        call: The call to send, or what a person is asked to click.
        audit: SHA-256 of its line of the audit log.
    """
    profile, verb = given.profile, evidence.verb
    # The same results and protections on which the gate has decided, not a newer list.
    asked = choose_collected_results(given, verb)
    found: tuple[tuple[ResultGroup, str], ...] = ()
    if profile is not None:
        found = list_protections(
            asked, given.state, profile, verb, find_storage_tiers(given, verb)[0], consent.ignored
        )
    proofs = {proof.path: proof for proof in asked.proofs}
    kept = []
    for group, safe in found:
        one = KeptResults(
            path=group.path,
            owner=group.owner,
            files=group.files,
            bytes=group.bytes,
            # Protected by nothing and allowed all the same: the person gave it up.
            by=safe or "lost",
        )
        proof = proofs.get(group.path)
        if safe == "copy" and proof is not None:
            one = msgspec.structs.replace(
                one, where=proof.where, sha256=proof.sha256, checkpoints=proof.checkpoints
            )
        kept.append(one)
    return Receipt(
        action=action,
        box=evidence.box,
        verb=verb,
        label=review.native_label,
        platform=profile.name if profile is not None else evidence.kind,
        instance=evidence.instance,
        who=find_user_and_host(),
        begun_at=given.now,
        call=call,
        # Although it is not sent yet: a crash right after the call must not leave "nothing
        # happened".
        state=ActionState.SENT,
        per_hour=review.per_hour,
        at_least=review.at_least,
        spent=review.spent,
        spent_at_least=review.spent_at_least,
        currency=review.currency,
        started_at=find_start(given.state),
        runs=list_run_receipts(given.state, kept),
        kept=tuple(kept),
        given_up=tuple(forfeit.text for forfeit in evidence.forfeits),
        keeps_billing=review.keeps_billing,
        still_per_hour=_kept_price(given.state, verb),
        to_end=_to_end(profile, evidence.box, verb) if profile is not None else "",
        evidence=facts_digest(evidence),
        audit=audit,
    )


def receipt_of_self_stop(box: BoxState, profile: Profile, at: float) -> Receipt:
    """Return the receipt of a box that parked itself.

    Its results were not listed from here, so only its runs are in it.

    Args:
        box: Its last state.
        profile: Its platform.
        at: When it went off, client clock.
    """
    spec, meter = box.spec, box.meter
    ref = spec.billing_ref
    per_hour = None
    if box.self_stop is not None:
        # The price when it was armed: a machine that is off reports that of its storage.
        prices_known = (one.per_hour for one in box.self_stop.armed)
        per_hour = next((price for price in prices_known if price is not None), None)
    instance = ""
    if ref is not None:
        instance = ref.instance
    return Receipt(
        # No journal entry exists; name and second make an id that is the same when it is written
        # again.
        action=f"self-{spec.name}-{at:.0f}",
        box=spec.name,
        verb=BillingVerb.PARK,
        label="autostop",
        platform=profile.name,
        instance=instance,
        who=translate("{name} itself", name=spec.name),
        begun_at=at,
        call=translate("sent by the box"),
        state=ActionState.OFF,
        ended_at=at,
        said=translate("the provider reports it as stopped"),
        per_hour=per_hour,
        spent=meter.spent,
        spent_at_least=meter.spent_at_least,
        currency=meter.currency,
        started_at=find_start(box),
        runs=list_run_receipts(box, ()),
        keeps_billing=list_kept_charges(profile, BillingVerb.PARK),
        still_per_hour=meter.storage_per_hour,
        to_end=_to_end(profile, spec.name, BillingVerb.PARK),
    )


def find_start(box: BoxState) -> float | None:
    """Return when a machine was last started, or created; None = unknown."""
    # The provider's word first, then the first sight of it running, then its age.
    for at in (box.meter.started, box.life.started_at, box.meter.created):
        if at is not None:
            return at
    return None


def list_run_receipts(
    box: BoxState, kept: list[KeptResults] | tuple[KeptResults, ...]
) -> tuple[RunReceipt, ...]:
    """Return the runs of a box with what happened to the results of each."""
    cells = {cell.name: cell for queue in box.queues for cell in queue.cells}
    found = {run.name: run for run in box.found}
    folders: dict[str, list[KeptResults]] = {}
    for one in kept:
        # "run NAME" or "cell NAME": the name alone is that of a run.
        folders.setdefault(one.owner.partition(" ")[2], []).append(one)
    rows = []
    for run in box.runs:
        steps = run.position
        if run.total_steps is not None:
            steps = translate(
                "{position} of {total_steps:,}",
                position=run.position,
                total_steps=run.total_steps,
            )
        cell = cells.get(run.name)
        ended = ""
        copy = translate("not listed")
        if cell is not None:
            ended = cell.state
            if cell.durable == "verified":
                copy = RESULT_FATES["durable"]
        elif run.name in found and not found[run.name].alive:
            ended = how_ended(found[run.name])
        mine = folders.get(run.name, [])
        # The listed directories say more than the cell's own mark.
        if mine:
            copy = "; ".join(dict.fromkeys(RESULT_FATES.get(one.by, one.by) for one in mine))
        best = run.best
        if best is None and cell is not None:
            best = cell.best
        digests = [one.sha256 for one in mine if one.sha256]
        rows.append(
            RunReceipt(
                name=run.name,
                steps=steps,
                best=best,
                ended=ended,
                copy=copy,
                sha256=", ".join(digests),
            )
        )
    return tuple(rows)


def _kept_price(box: BoxState, verb: BillingVerb) -> float | None:
    if verb is BillingVerb.PARK:
        return box.meter.storage_per_hour
    return None


def _to_end(profile: Profile, box: str, verb: BillingVerb) -> str:
    if verb is BillingVerb.PARK and action_for(profile, BillingVerb.DESTROY) is not None:
        return translate("destroy it: rgt down {box} --destroy", box=box)
    where = ""
    if profile.home_url:
        where = f" ({profile.home_url})"
    if profile.stops_all:
        return f"{profile.stops_all}{where}"
    return translate("on the console of {name}{where}", name=profile.name, where=where)


def _record_receipt(receipt: Receipt) -> Receipt:
    """Return a receipt with its sentences in English, as it is kept: any rgt may read it."""
    runs = [
        msgspec.structs.replace(
            run,
            steps=record_text(run.steps),
            ended=record_text(run.ended),
            copy=record_text(run.copy),
        )
        for run in receipt.runs
    ]
    return msgspec.structs.replace(
        receipt,
        runs=tuple(runs),
        who=record_text(receipt.who),
        call=record_text(receipt.call),
        said=record_text(receipt.said),
        given_up=tuple(map(record_text, receipt.given_up)),
        keeps_billing=tuple(map(record_text, receipt.keeps_billing)),
        to_end=record_text(receipt.to_end),
    )


class ReceiptBook:
    """The receipts, one file each, in one directory of mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save_receipt(self, receipt: Receipt) -> None:
        """Write a receipt, or its newer state.

        Raises:
            OSError: it was not written.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        receipt = _record_receipt(receipt)
        files.replace_file(self.folder / f"{receipt.action}.json", msgspec.json.encode(receipt))
        # A second file, which people read without rgt.
        text = receipt_markdown(receipt)
        files.replace_file(self.folder / f"{receipt.action}.md", text.encode())

    def finish_receipt(
        self, action: str, state: ActionState, at: float, said: str, spent: float | None = None
    ) -> Receipt | None:
        """Record how an action ended; return its receipt, or None without one.

        A failure to write it is ignored.
        """
        found = self._read_receipt(self.folder / f"{action}.json")
        if found is None:
            return None
        if spent is None:
            # Without a newer sum, the one before the call stays.
            spent = found.spent
        found = msgspec.structs.replace(found, state=state, ended_at=at, said=said, spent=spent)
        with contextlib.suppress(OSError):
            self.save_receipt(found)
        return found

    def list_receipts(self) -> list[Receipt]:
        """Return all receipts, the oldest first."""
        return sorted(self._iterate_receipts(), key=lambda one: one.begun_at)

    def find_newest(self, box: str, *, settled: bool = False) -> Receipt | None:
        """Return the newest receipt of a box; with `settled`, the newest with a known outcome."""
        mine = [
            one
            for one in self._iterate_receipts()
            if one.box == box and (one.is_settled or not settled)
        ]
        return max(mine, key=lambda one: one.begun_at, default=None)

    def _iterate_receipts(self) -> Iterator[Receipt]:
        for path in sorted(self.folder.glob("*.json")):
            found = self._read_receipt(path)
            if found is not None:
                yield found

    def _read_receipt(self, path: Path) -> Receipt | None:
        try:
            with files.open_regular(path, follow=False) as file:
                return msgspec.json.decode(file.read(MOST_BYTES), type=Receipt)
        # A damaged receipt hides nothing else: the audit log is the record.
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def receipt_title(receipt: Receipt) -> str:
    """Return what happened, in a few words.

    Not a question, since there is nothing left to decide.
    """
    done = translate(receipt.verb.done_word)
    if receipt.state is ActionState.YOURS:
        return translate("{box}: waits for your click", box=receipt.box)
    if receipt.state is ActionState.FAILED:
        return translate("{box}: not {done}", box=receipt.box, done=done)
    if receipt.is_settled:
        return f"{receipt.box}: {done}"
    return translate("{box}: unknown whether {done}", box=receipt.box, done=done)


def receipt_rows(receipt: Receipt) -> tuple[tuple[str, str], ...]:
    """Return the receipt as (label, text) rows; an empty label continues the row above.

    The labels are English, and translated where they are shown.
    """
    if receipt.ended_at is not None:
        ended = moment(receipt.ended_at)
    else:
        ended = translate("unknown when")
    machine = f"{receipt.platform} {receipt.instance}, {receipt.label or receipt.verb.value}"
    begun = translate(
        "{moment} by {who}", moment=moment(receipt.begun_at), who=show_recorded(receipt.who)
    )
    runs = [_describe_run(one) for one in receipt.runs] or [translate("none were seen")]
    kept = [_describe_kept(one) for one in receipt.kept] or [translate("none were on the machine")]
    given_up = [show_recorded(one) for one in receipt.given_up]
    charges = [show_recorded(one) for one in list_charges(receipt)] or [translate("nothing found")]
    missing = translate("not recorded")
    ends = [show_recorded(receipt.to_end)] if receipt.keeps_billing and receipt.to_end else []
    return (
        *_label_rows("machine", [machine]),
        *_label_rows("begun", [begun]),
        *_label_rows("ended", [f"{ended}: {_describe_end(receipt)}"]),
        *_label_rows("on for", [_describe_time_on(receipt)]),
        *_label_rows("cost", [_describe_cost(receipt)]),
        *_label_rows("idle", [_describe_idle(receipt)]),
        *_label_rows("runs", runs),
        *_label_rows("results", kept),
        *_label_rows("given up", given_up),
        *_label_rows("still bills", charges),
        *_label_rows("to end that", ends),
        *_label_rows("call", [show_recorded(receipt.call)]),
        *_label_rows("evidence", [receipt.evidence or missing]),
        *_label_rows("audit line", [receipt.audit or missing]),
    )


def receipt_markdown(receipt: Receipt) -> str:
    """Return the receipt as a Markdown page."""

    def escape_text(text: str) -> str:
        # Names of runs come from the box, and must not become links or HTML; the backslash first.
        for char in "\\`*_|<>[]":
            text = text.replace(char, f"\\{char}")
        return " ".join(text.split())

    lines = [f"# {escape_text(receipt_title(receipt))}", ""]
    label = ""
    for name, text in receipt_rows(receipt):
        label = name or label
        if label != "runs":
            lines.append(f"- **{translate(label)}**: {escape_text(text)}")
    if receipt.runs:
        heads = translate("run | steps | best loss | state | results | SHA-256")
        lines += ["", f"| {heads} |", "|---|---|---|---|---|---|"]
    for run in receipt.runs:
        told = [show_recorded(text) for text in (run.steps, run.ended, run.copy)]
        cells = (run.name, told[0], _format_best(run), *told[1:], run.sha256)
        lines.append("| " + " | ".join(escape_text(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def list_charges(receipt: Receipt) -> tuple[str, ...]:
    """Return what still bills, with the price per month where it is known."""
    rows = receipt.keeps_billing
    # The profile's own rows may have a price per month already.
    if receipt.still_per_hour is None or any("a month" in row for row in rows):
        return rows
    hour = format_money(receipt.still_per_hour, receipt.currency)
    month = format_money(receipt.still_per_hour * prices.HOURS["GB-month"], receipt.currency)
    return (*rows, translate("storage in all {hour}/h, {month} a month", hour=hour, month=month))


def _label_rows(label: str, texts: list[str]) -> list[tuple[str, str]]:
    return [(label if number == 0 else "", text) for number, text in enumerate(texts)]


def _describe_end(receipt: Receipt) -> str:
    """Return the answer that ended it, without the charges if the rows of "still bills" have the same."""
    charges = f"; keeps billing: {'; '.join(receipt.keeps_billing)}"
    return show_recorded(receipt.said.removesuffix(charges) or receipt.state.value)


def _describe_cost(receipt: Receipt) -> str:
    parts = []
    if receipt.spent is not None:
        spent = format_money(receipt.spent, receipt.currency, receipt.spent_at_least)
        parts.append(translate("{spent} in all", spent=spent))
    if receipt.per_hour is not None:
        price = format_money(receipt.per_hour, receipt.currency, receipt.at_least)
        parts.append(translate("{price}/h until then", price=price))
    return ", ".join(parts) or translate("unknown")


def _describe_time_on(receipt: Receipt) -> str:
    if receipt.started_at is None:
        return translate("unknown: the provider does not report its start")
    # Until the call, if the end is unknown.
    end = receipt.ended_at or receipt.begun_at
    span = format_duration(end - receipt.started_at)
    return translate("{span}, since {moment}", span=span, moment=moment(receipt.started_at))


def _describe_idle(receipt: Receipt) -> str:
    if not receipt.watched:
        return translate("unknown")
    shares = []
    idle = {one.currency: one.value for one in receipt.idle}
    for amount in receipt.watched:
        share = compute_percent(idle.get(amount.currency, 0.0), amount.value)
        if share is not None:
            shares.append(pct(share))
    idle_sum = format_sums(receipt.idle, none="0")
    total = format_sums(receipt.watched)
    return translate(
        "{shares}: {idle_sum} of {total} while rgt watched",
        shares=" + ".join(shares),
        idle_sum=idle_sum,
        total=total,
    )


def _format_best(run: RunReceipt) -> str:
    if run.best is None:
        return translate("unknown")
    return f"{run.best:.4g}"


def _describe_run(run: RunReceipt) -> str:
    best = translate("best loss {best}", best=_format_best(run))
    parts = [f"{run.name}: {show_recorded(run.steps)}", best]
    if run.ended:
        parts.append(show_recorded(run.ended))
    parts.append(translate("results {copy}", copy=show_recorded(run.copy)))
    return ", ".join(parts)


def _describe_kept(one: KeptResults) -> str:
    owner = one.owner or translate("nobody owns it")
    what = f"{one.path} ({owner}, {how_many(one.files, 'file')}, {size(one.bytes)})"
    text = f"{what}: {translate(RESULT_FATES.get(one.by, one.by))}"
    if one.where:
        loads = ""
        if one.checkpoints:
            loads = translate(
                ", {checkpoints} loaded", checkpoints=how_many(one.checkpoints, "checkpoint")
            )
        text += translate(
            " in {where}{loads}, sha256 {sha256}", where=one.where, loads=loads, sha256=one.sha256
        )
    return text
