"""``rgt bid``: show a spot machine's bid and its cost, and change it after a person confirms."""

from __future__ import annotations

import asyncio
import os
import secrets
import time

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNCONFIRMED, UNREACHABLE, USAGE
from rgt_tui.cli.opening import open_boxes
from rgt_tui.cli.printing import (
    is_interactive,
    print_error,
    print_json,
    print_lines,
    prompt_line,
    wait_indicator,
)
from rgt_tui.cli.teardown.money_arguments import BidArguments
from rgt_tui.gate import (
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLog,
    BidCase,
    bid_offer,
    bid_permit,
    bid_review,
)
from rgt_tui.gate.audit import default_path
from rgt_tui.language import translate
from rgt_tui.model import BidReview, ProviderRef, RentPermit, steady_time
from rgt_tui.providers import Bidder, ProviderError, Providers, UnknownProvider, bidder_of

DEED = "bid"


def run_bid(arguments: BidArguments) -> int:
    """Change the bid of one box; return the exit status."""
    # The digest ties the phrase to the bid that was shown; alone, either could confirm another one.
    if (arguments.confirm is None) != (arguments.evidence is None):
        print_error(
            translate("--confirm and --evidence are used together: --dry-run --json prints both")
        )
        return USAGE
    _, (spec,) = open_boxes(arguments, [arguments.box], trusted=True)
    # The highest price given to `rgt up`, if it rented the box.
    run = _BidCommand(arguments, spec.name, None if spec.asked is None else spec.asked.max_per_hour)
    if spec.provider is None:
        return run.print_result(
            USAGE,
            translate(
                "{name} has no provider in the fleet file, so its bid cannot be read",
                name=spec.name,
            ),
        )
    return running.run_on_box(spec.name, run.change_bid(spec.provider))


class _BidCommand:
    """One run of the command."""

    def __init__(self, arguments: BidArguments, box: str, agreed_per_hour: float | None) -> None:
        self._arguments = arguments
        self._box = box
        self._agreed_per_hour = agreed_per_hour
        self._review: BidReview | None = None
        self._log = AuditLog(default_path(os.environ))

    async def change_bid(self, ref: ProviderRef) -> int:
        """Read the bid, show it, and change it."""
        providers = Providers()
        try:
            bidder = bidder_of(providers.find_account(ref))
            # Vast.ai is the only one so far, see `rgt_tui.providers.bidder_of`.
            if bidder is None:
                return self.print_result(
                    FAILED,
                    translate(
                        "{kind} has no call that changes a bid; use its console", kind=ref.kind
                    ),
                )
            return await self._change_bid(bidder, ref)
        except UnknownProvider as error:
            return self.print_result(USAGE, str(error))
        finally:
            await providers.close()

    async def _change_bid(self, bidder: Bidder, ref: ProviderRef) -> int:
        arguments, price = self._arguments, float(self._arguments.price)
        try:
            with wait_indicator(translate("reading the bid …")):
                # Read now: other tenants' bids move the lowest one within minutes.
                bid = await bidder.read_bid(ref.instance)
        except ProviderError as error:
            return self.print_result(
                UNREACHABLE, translate("the bid cannot be read: {error}", error=error)
            )
        case = BidCase(
            box=self._box,
            account=ref.account,
            bid=bid,
            at=steady_time(),
            price=price,
            limits=bidder.limits,
            agreed_per_hour=self._agreed_per_hour,
            readonly=arguments.readonly,
        )
        # The same text goes into the audit log: shown and recorded request must agree.
        sends = bidder.describe_bid(ref.instance, price)
        review = self._review = bid_review(case, steady_time(), will_send=sends)
        if not arguments.json:
            for line in (
                *review.lines,
                translate("will send: {will_send}", will_send=review.will_send),
            ):
                print_lines(line)
        if review.refusals:
            return self.print_result(FAILED, *review.refusals, translate("nothing was sent"))
        if arguments.dry_run:
            return self.print_result(OK)
        typed = arguments.confirm
        if typed is None:
            if not is_interactive():
                return self.print_result(
                    USAGE,
                    translate(
                        "cannot prompt here: in a script, run it with --dry-run --json, then pass "
                        "what it prints: --confirm PHRASE --evidence DIGEST"
                    ),
                )
            typed = prompt_line(
                translate(
                    'type "{phrase}" to change the bid, anything else to cancel: ',
                    phrase=review.phrase,
                )
            )
        # Ties the permit to this one call; the request itself has no field for it.
        token = f"bid-{secrets.token_hex(8)}"
        permit = bid_permit(case, token, steady_time(), typed=typed, digest=arguments.evidence)
        if not isinstance(permit, RentPermit):
            # Not needed for money: a refusal that cannot be recorded is still a refusal.
            self._try_record_event(AuditEvent.REFUSED, ref.instance, "; ".join(permit.reasons))
            return self.print_result(FAILED, *permit.reasons, translate("nothing was sent"))
        return await self._send_bid(bidder, case, token, permit)

    async def _send_bid(self, bidder: Bidder, case: BidCase, token: str, permit: RentPermit) -> int:
        try:
            # Must succeed: a call that is not in the log is not sent.
            self._record_event(
                AuditEvent.REQUESTED,
                case.bid.instance,
                bidder.describe_bid(case.bid.instance, case.price),
            )
        except AuditFailed as error:
            return self.print_result(FAILED, str(error), translate("nothing was sent"))
        try:
            said = await bidder.change_bid(bid_offer(case), token, permit)
        except ProviderError as error:
            # Only answers that the vendor documents as a refusal; all others may have changed the
            # bid.
            refused = bidder.is_refused(error)
            self._try_record_event(AuditEvent.ANSWER, case.bid.instance, str(error))
            if refused:
                return self.print_result(
                    FAILED, translate("refused, the bid is unchanged: {error}", error=error)
                )
            return self.print_result(
                UNCONFIRMED,
                translate("sent, outcome unknown; run rgt bid again: {error}", error=error),
            )
        self._try_record_event(AuditEvent.ANSWER, case.bid.instance, said)
        return await self._confirm_bid(bidder, case)

    async def _confirm_bid(self, bidder: Bidder, case: BidCase) -> int:
        """Read the bid back until the platform shows the new one."""
        why = ""
        # How often a changed bid is read back before it counts as not confirmed.
        reads = 5
        read_gap_s = 2.0
        # The platform's list lags, so the first reading may still show the old bid.
        for read in range(reads):
            if read:
                await asyncio.sleep(read_gap_s)
            try:
                bid = await bidder.read_bid(case.bid.instance)
            except ProviderError as error:
                why = translate("it cannot be read back: {error}", error=error)
                continue
            # The platform may round what it stores.
            if bid.per_hour is not None and abs(bid.per_hour - case.price) < 1e-6:
                if not self._arguments.json:
                    if bid.outbid:
                        state = translate("OUTBID: it is stopped, and its disk is charged")
                    else:
                        state = bid.status
                    print_lines(f"changed: {case.price:g} {bid.currency}/h; {state}")
                return self.print_result(OK)
            why = translate("the platform shows no bid")
            if bid.per_hour is not None:
                why = translate(
                    "the platform shows {per_hour} {currency}/h",
                    per_hour=bid.per_hour,
                    currency=bid.currency,
                )
        return self.print_result(
            UNCONFIRMED,
            translate("the platform accepted the bid but does not show it: {why}", why=why),
        )

    def _record_event(self, event: AuditEvent, instance: str, text: str) -> None:
        entry = AuditEntry(
            at=time.time(),
            event=event,
            box=self._box,
            verb=None,
            instance=instance,
            deed=DEED,
            text=text,
        )
        self._log.record_entry(entry)

    def _try_record_event(self, event: AuditEvent, instance: str, text: str) -> None:
        """Record an event; if the log cannot be written, the command continues with a warning."""
        try:
            self._record_event(event, instance, text)
        except AuditFailed as error:
            print_error(error)

    def print_result(self, code: int, *reasons: str) -> int:
        """Print the result, and return the exit status."""
        if self._arguments.json:
            review = self._review
            print_json(
                {
                    "box": self._box,
                    "ok": code == OK,
                    "exit": code,
                    "reasons": reasons,
                    "bid": None if review is None else review.bid,
                    "price": self._arguments.price,
                    "lines": () if review is None else review.lines,
                    "request": "" if review is None else review.will_send,
                    "phrase": "" if review is None else review.phrase,
                    "digest": "" if review is None else review.digest,
                }
            )
            return code
        for reason in reasons:
            print_error(reason)
        return code
