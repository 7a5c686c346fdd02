"""Find offers for a request, and create a machine with a call that is never sent twice.

No platform has an idempotency key, and some answer an error after they have created a machine. So
the request and its token are on disk before the call is sent, and unless the answer proves that
nothing was created, the machine is searched for by the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec

from rgt_tui.gate import (
    ActionState,
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLog,
    CreationRecord,
    InstanceTarget,
    Journal,
    JournaledAction,
    JournalFailed,
    OpenAction,
    RentCase,
    describe_open_action,
    rent_permit,
    rent_review,
)
from rgt_tui.language import translate
from rgt_tui.model import (
    FrozenStruct,
    ImageDigest,
    Offer,
    ProviderRef,
    Refusal,
    RentalRequest,
    RentPermit,
    RentReview,
    steady_time,
)
from rgt_tui.profiles import ProfileError, load_profile
from rgt_tui.providers import (
    KINDS,
    AnswerProof,
    AuthError,
    Instance,
    Market,
    PermitRefused,
    ProviderError,
    Providers,
    creation_proof,
)


class SearchPaces(FrozenStruct):
    """How a machine is searched whose order was not answered, in seconds."""

    find_s: float = 600.0
    """How long to search: a new machine may be missing from lists for minutes."""
    every_s: float = 5.0
    """Seconds between two searches during the first minute."""
    seldom_s: float = 15.0
    """Seconds between two searches after the first minute."""


SEARCH_PACES = SearchPaces()


Say = Callable[[str], None]


class CreationOutcome(enum.StrEnum):
    """The result of a creation."""

    RENTED = "rented"
    """The machine exists and bills."""
    NOTHING = "nothing"
    """It is proved that nothing was created."""
    REFUSED = "refused"
    """The gate refused, or the journal could not be written: nothing was sent."""
    UNKNOWN = "unknown"
    """Sent, but it is unknown whether a machine exists."""


class CreationResult(FrozenStruct, kw_only=True):
    """The state of a creation."""

    outcome: CreationOutcome
    reasons: tuple[str, ...] = ()
    machine: Instance | None = None


def account_target(ref: ProviderRef) -> InstanceTarget:
    """Return the journal target for creations of an account."""
    return InstanceTarget(kind=ref.kind, account=ref.account, instance="")


def open_creations(journal: Journal) -> tuple[OpenAction, ...]:
    """Return the creations without a recorded result, oldest first.

    Raises:
        JournalFailed: a file cannot be read, so open creations are unknown.
    """
    found, problems = journal.open_actions()
    # An unreadable file may be the record of a machine that is billed.
    if problems:
        raise JournalFailed("; ".join(problems))
    return tuple(one for one in found if one.first.rent is not None)


def ref_of(action: OpenAction) -> ProviderRef:
    """Return the account of a creation."""
    rent, target = action.first.rent, action.first.target
    return ProviderRef(
        kind=target.kind,
        instance="",
        base_url=rent.base_url if rent is not None else None,
        key_env=rent.key_env if rent is not None else None,
    )


class Creation:
    """A creation in progress, with its account locked; also one left open by an earlier rgt."""

    def __init__(self, action: JournaledAction) -> None:
        self.action = action

    @property
    def earlier(self) -> OpenAction | None:
        """The action left open by an earlier rgt."""
        return self.action.earlier

    async def record_state(
        self, state: ActionState, text: str, machine: str = "", audit: str = ""
    ) -> None:
        """Record its state.

        Raises:
            JournalFailed: it is not on disk.
        """
        # The creation of an earlier rgt is settled under its own id, not as a new action.
        if self.action.earlier is not None:
            write = self.action.settle_earlier
        else:
            write = self.action.record_state
        await asyncio.to_thread(write, state, text, machine=machine, audit=audit)


async def wait_for_machine(
    market: Market,
    token: str,
    *,
    seconds: float,
    sleep: Callable[[float], Awaitable[None]],
    ticks: Callable[[], float] = steady_time,
    say: Say = lambda text: None,
) -> tuple[Instance, ...]:
    """Search for machines with a token in their name until one is found or the time is up."""
    begun, waited, trouble = ticks(), 0.0, ""
    while True:
        try:
            found = await market.find_by_token(token)
        except ProviderError as error:
            found = ()
            # The same error is said once, not every five seconds.
            if str(error) != trouble:
                trouble = str(error)
                say(translate("the list cannot be read: {trouble}", trouble=trouble))
        # The pauses count as well: a clock that does not advance must not cause an endless search.
        passed = max(waited, ticks() - begun)
        if found or passed >= seconds:
            return found
        if passed < 60.0:
            pause = SEARCH_PACES.every_s
        else:
            pause = SEARCH_PACES.seldom_s
        await sleep(pause)
        waited += pause


class MachineRental:
    """Rents machines, each by one call.

    Args:
        providers: Access to the markets.
        journal: Records the creation before it is sent.
        audit: The audit log.
        clock: Epoch seconds.
        sleep: Sleeps for a number of seconds.
        ticks: The steady clock.
        readonly: Refuse every creation.
        find_seconds: How long to search after a lost answer.
    """

    def __init__(
        self,
        providers: Providers,
        journal: Journal,
        audit: AuditLog,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        ticks: Callable[[], float] = steady_time,
        readonly: bool = False,
        find_seconds: float = SEARCH_PACES.find_s,
    ) -> None:
        self._providers = providers
        self._journal = journal
        self._audit = audit
        self._clock = clock
        self._sleep = sleep
        self._ticks = ticks
        self._readonly = readonly
        self._find_seconds = find_seconds

    @contextlib.contextmanager
    def lock_account(self, ref: ProviderRef, box: str) -> Iterator[Creation]:
        """Lock an account, so that no other rgt rents there meanwhile.

        Raises:
            InstanceLocked: another process holds the lock.
            JournalFailed: the journal cannot be read or written.
        """
        with self._journal.lock_instance(account_target(ref), box, None) as action:
            yield Creation(action)

    async def review_rental(
        self, candidate: Candidate, wish: RentalRequest, box: str, token: str, *, taken: str = ""
    ) -> RentReview:
        """Return what a person must see before accepting this candidate, which was just read."""
        ticks = self._ticks()
        try:
            call = market_of(self._providers, candidate.ref).describe_creation(
                candidate.offer, wish, token
            )
        except ProviderError as error:  # the market cannot fulfil this request
            call, taken = "", taken or str(error)
        open_ = self._describe_open_creations(candidate.ref, box)
        case = self._build_case(candidate, wish, box, taken, candidate.offer, ticks, open_)
        return rent_review(case, ticks, will_send=call)

    def _describe_open_creations(self, ref: ProviderRef, box: str) -> str:
        """Return open creations of this account, or for this box anywhere; empty = none."""
        try:
            found = open_creations(self._journal)
        except JournalFailed as error:
            return str(error)
        target = account_target(ref)
        # Also another account: the order for this box may have gone there.
        mine = [one for one in found if one.first.target == target or one.first.box == box]
        # An intent whose call was never sent is closed by the next creation; it may even be this
        # one.
        return "; ".join(
            describe_open_action(one) for one in mine if one.last.state is not ActionState.INTENT
        )

    def _build_case(
        self, candidate: Candidate, wish: RentalRequest, box: str, taken: str, fresh: Offer | None,
        at: float | None,
        open_: str
    ) -> RentCase:  # fmt: skip
        return RentCase(
            box=box,
            account=candidate.ref.account,
            wish=wish,
            shown=candidate.offer,
            fresh=fresh,
            at=at,
            open=open_,
            taken=taken,
            readonly=self._readonly,
        )

    async def create_machine(
        self,
        creation: Creation,
        candidate: Candidate,
        wish: RentalRequest,
        box: str,
        token: str,
        *,
        typed: str,
        digest: str | None = None,
        taken: str = "",
        say: Say = lambda text: None,
    ) -> CreationResult:
        """Read the offer again, pass it to the gate, record everything, and send the one call.

        Args:
            creation: With its account locked.
            candidate: The offer that the person has seen.
            wish: The request that it was found with.
            box: Name of the new box.
            token: Of this creation alone.
            typed: What the person typed.
            digest: Of the review, if made by another process.
            taken: Why the box cannot be added to the fleet file; empty = it can.
            say: Called with progress messages.
        """
        market = market_of(self._providers, candidate.ref)
        # Prices change while a person reads: the gate compares both.
        fresh, at = await self._read_offer_again(market, candidate.offer, wish)
        case = self._build_case(
            candidate,
            wish,
            box,
            taken,
            fresh,
            at,
            self._describe_open_creations(candidate.ref, box),
        )
        verdict = rent_permit(case, token, self._ticks(), typed=typed, digest=digest)
        if isinstance(verdict, Refusal):
            self._write_audit(
                AuditEvent.REFUSED, box, "", "; ".join(verdict.reasons), typed=typed, required=False
            )
            return CreationResult(outcome=CreationOutcome.REFUSED, reasons=verdict.reasons)
        offer = fresh or candidate.offer
        try:
            call = market.describe_creation(offer, wish, token)
        except ProviderError as error:
            return CreationResult(
                outcome=CreationOutcome.REFUSED,
                reasons=(translate("{error}. Nothing was sent.", error=error),),
            )
        ref = candidate.ref
        rent = CreationRecord(
            token=token, offer=offer, wish=wish, base_url=ref.base_url, key_env=ref.key_env
        )
        try:
            # Audit, intent, SENT: all on disk before the call, so that a crash at any point leaves
            # a trace.
            line = await asyncio.to_thread(
                self._write_audit,
                AuditEvent.REQUESTED,
                box,
                token,
                call,
                typed=typed,
                shown=digest or "",
                required=True,
            )
            await asyncio.to_thread(creation.action.record_intent, call, audit=line, rent=rent)
            await creation.record_state(ActionState.SENT, call)
        except (AuditFailed, JournalFailed) as error:
            return CreationResult(
                outcome=CreationOutcome.REFUSED,
                reasons=(translate("{error}. Nothing was sent.", error=error),),
            )
        return await self._send_creation(creation, market, offer, wish, verdict, say)

    async def _read_offer_again(
        self, market: Market, shown: Offer, wish: RentalRequest
    ) -> tuple[Offer | None, float | None]:
        """Read the offer again; ``(None, None)`` if the market cannot be queried."""
        at = self._ticks()
        try:
            offers = await market.find_offers(wish)
        except ProviderError:
            return None, None
        return next((one for one in offers if one.id == shown.id), None), at

    async def _send_creation(
        self,
        creation: Creation,
        market: Market,
        offer: Offer,
        wish: RentalRequest,
        permit: RentPermit,
        say: Say,
    ) -> CreationResult:
        box, token = permit.box, permit.token
        try:
            made = await market.create_instance(offer, wish, token, permit)
        except (PermitRefused, ProviderError) as error:
            # By the platform's own table of answers: a status that means nothing elsewhere may be
            # proof here.
            proves = creation_proof(offer.kind, error)
            if proves is AnswerProof.NOTHING:
                sent = isinstance(error, ProviderError) and error.sent
                if sent:
                    # Recorded apart: only a call that was sent can appear on the platform's own
                    # list.
                    state = ActionState.FAILED
                else:
                    state = ActionState.REFUSED
                await self._record_step(
                    creation,
                    state,
                    box,
                    token,
                    translate("nothing was created: {error}", error=error),
                )
                return CreationResult(outcome=CreationOutcome.NOTHING, reasons=(str(error),))
            return await self._find_lost_machine(creation, market, box, token, str(error), say)
        except Exception as error:  # an unexpected error: the call may still have been sent
            return await self._find_lost_machine(
                creation, market, box, token, f"{type(error).__name__}: {error}", say
            )
        await self._record_step(
            creation,
            ActionState.ANSWERED,
            box,
            token,
            translate("{id} was made", id=made.id),
            machine=made.id,
        )
        return CreationResult(outcome=CreationOutcome.RENTED, machine=made)

    async def _find_lost_machine(
        self, creation: Creation, market: Market, box: str, token: str, why: str, say: Say
    ) -> CreationResult:
        """Search for the machine of a call whose answer proves nothing."""
        await self._record_step(
            creation,
            ActionState.UNKNOWN,
            box,
            token,
            translate("sent, but not acknowledged: {why}", why=why),
        )
        length = f"{self._find_seconds / 60:.0f} min"
        say(
            translate(
                "sent, but not acknowledged ({why}): searching the list for {token}, for {length}",
                why=why,
                token=token,
                length=length,
            )
        )
        return await self.find_machine(
            creation, market, box, token, seconds=self._find_seconds, say=say
        )

    async def find_machine(
        self,
        creation: Creation,
        market: Market,
        box: str,
        token: str,
        *,
        seconds: float,
        say: Say = lambda text: None,
    ) -> CreationResult:
        """Search for the machine of a creation by its token, and record the result.

        Sends nothing.
        """
        found = await wait_for_machine(
            market, token, seconds=seconds, sleep=self._sleep, ticks=self._ticks, say=say
        )
        if len(found) == 1:
            (machine,) = found
            await self._record_step(
                creation,
                ActionState.CONFIRMED,
                box,
                token,
                translate("{id} is in the list", id=machine.id),
                machine=machine.id,
            )
            return CreationResult(outcome=CreationOutcome.RENTED, machine=machine)
        if found:
            # More than one, although one call was sent: a person decides which of them to destroy.
            ids = ", ".join(one.id for one in found)
            why = translate(
                "{found} machines have the token {token} and are billed: {ids}; destroy "
                "all but one",
                found=len(found),
                token=token,
                ids=ids,
            )
        else:
            # UNKNOWN, not NOTHING: a machine that appears in an hour would otherwise belong to no
            # box.
            why = translate(
                "no machine has the token {token} yet, but lists lag. Check the console; "
                "rgt keeps searching while it runs, and rents nothing more there until "
                "then",
                token=token,
            )
        return CreationResult(outcome=CreationOutcome.UNKNOWN, reasons=(why,))

    async def record_confirmed(
        self, creation: Creation, box: str, token: str, machine: Instance
    ) -> None:
        """Record that a created machine appears in the list."""
        last = (
            creation.earlier.last.state if creation.earlier is not None else creation.action.state
        )
        if last is not ActionState.CONFIRMED:
            text = translate("{id} is in the list", id=machine.id)
            await self._record_step(
                creation, ActionState.CONFIRMED, box, token, text, machine=machine.id
            )

    async def record_listed(
        self, creation: Creation, box: str, token: str, machine: str, where: str
    ) -> None:
        """Record that the fleet file contains the machine: the creation is closed."""
        await self._record_step(
            creation,
            ActionState.LISTED,
            box,
            token,
            translate("{machine} is in {where}", machine=machine, where=where),
            machine=machine,
        )

    async def record_nothing_made(
        self, creation: Creation, box: str, token: str, text: str
    ) -> None:
        """Record that a creation made no machine, according to a person or a complete list."""
        await self._record_step(creation, ActionState.FAILED, box, token, text)

    async def _record_step(
        self,
        creation: Creation,
        state: ActionState,
        box: str,
        token: str,
        text: str,
        machine: str = "",
    ) -> None:
        """Record a step in the journal and the audit log.

        Errors are ignored: the call was sent, which a full disk cannot undo.
        """
        # Audit first: its line is named in the journal.
        # Audit first: its line is named in the journal.
        line = await asyncio.to_thread(
            self._write_audit,
            AuditEvent.ANSWER,
            box,
            machine or token,
            f"{state}: {text}",
            required=False,
        )
        with contextlib.suppress(JournalFailed):
            await creation.record_state(state, text, machine, line)

    def _write_audit(
        self, event: AuditEvent, box: str, instance: str, text: str, *, required: bool,
        typed: str = "", shown: str = ""
    ) -> str:  # fmt: skip
        entry = AuditEntry(
            at=self._clock(),
            event=event,
            box=box,
            verb=None,
            instance=instance,
            typed=typed,
            shown=shown,
            text=text,
        )
        try:
            return self._audit.record_entry(entry)
        except AuditFailed:
            if required:
                raise
            return ""


# The offers that match a request: several accounts merged in one order, each with its full price.


class Candidate(FrozenStruct, kw_only=True):
    """One offer, and the account that would pay."""

    ref: ProviderRef
    """Any machine of the account."""
    offer: Offer


class AccountTrouble(FrozenStruct, kw_only=True):
    """An account whose offers could not be read."""

    kind: str
    text: str
    no_key: bool = False
    """There is no key, which only matters if the person named this provider."""
    refused: bool = False
    """The platform was not queried, because it cannot fulfil such a request."""
    no_market: bool = False
    """It has no API for renting."""


class OfferSearch(FrozenStruct, kw_only=True):
    """The result of a search."""

    candidates: tuple[Candidate, ...] = ()
    """The cheapest first, including the disk; then offers in another currency than the request's,
    and last those without a price."""
    troubles: tuple[AccountTrouble, ...] = ()
    answered: tuple[str, ...] = ()
    """Kinds of the providers that answered, each once; their offers may not match."""
    image: ImageDigest | None = None
    """The requested container image; None = no image was requested, or it is no container's."""

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Kinds of the providers that were queried and did not answer."""
        silent = [one.kind for one in self.troubles if not (one.refused or one.no_key)]
        return tuple(dict.fromkeys(silent))


def market_of(providers: Providers, ref: ProviderRef) -> Market:
    """Return the market that rents machines of an account.

    Raises:
        ProviderError: it has no API for renting: use the platform's console.
        UnknownProvider: there is no adapter.
    """
    market = providers.find_account(ref).open_market()
    if market is None:
        text = translate(
            "{kind} rents no machines by its API; use its console, then rgt add", kind=ref.kind
        )
        with contextlib.suppress(ProfileError):
            key_step = load_profile(ref.kind).launch.key_step
            if key_step:
                text += translate("; your public key: {key_step}", key_step=key_step)
        raise ProviderError(text, sent=False)
    return market


async def search_offers(
    providers: Providers, refs: Sequence[ProviderRef], wish: RentalRequest
) -> OfferSearch:
    """Query accounts concurrently for offers that match a request."""

    async def search_account(ref: ProviderRef) -> tuple[list[Candidate], list[AccountTrouble]]:
        try:
            market = market_of(providers, ref)
        except ProviderError as error:
            return [], [
                AccountTrouble(kind=ref.kind, text=str(error), refused=True, no_market=True)
            ]
        try:
            offers = await market.find_offers(wish)
        except ProviderError as error:
            # Not sent and an AuthError: there was no key to send.
            no_key = isinstance(error, AuthError) and not error.sent
            refused = not error.sent and not no_key and error.status is None
            return [], [
                AccountTrouble(kind=ref.kind, text=str(error), no_key=no_key, refused=refused)
            ]
        return [Candidate(ref=ref, offer=offer) for offer in offers], []

    parts = await asyncio.gather(*(search_account(ref) for ref in refs))
    found = [candidate for some, _ in parts for candidate in some]
    answered = [ref.kind for ref, (_, troubles) in zip(refs, parts, strict=True) if not troubles]
    return OfferSearch(
        candidates=tuple(sorted(found, key=lambda one: _offer_rank(one.offer, wish))),
        troubles=tuple(trouble for _, some in parts for trouble in some),
        answered=tuple(dict.fromkeys(answered)),
    )


def _offer_rank(offer: Offer, wish: RentalRequest) -> tuple[bool, bool, float]:
    price = offer.per_hour
    # An unknown price must not sort like a free machine.
    return price is None, offer.currency != wish.currency, price or 0.0


def prefer_kinds(found: OfferSearch, kinds: Sequence[str]) -> OfferSearch:
    """Return a search with the offers of the first of `kinds` in front, and so on."""
    order = {kind: place for place, kind in enumerate(kinds)}
    # Stable: within a kind the cheapest stays first.
    candidates = sorted(found.candidates, key=lambda one: order.get(one.ref.kind, len(order)))
    return msgspec.structs.replace(found, candidates=tuple(candidates))


def renting_accounts(
    providers: Providers, kinds: Sequence[str], refs: Sequence[ProviderRef]
) -> list[ProviderRef]:
    """Return a machine of each account to query.

    These are accounts of the named kinds, otherwise those of the fleet that can rent, otherwise all
    kinds.

    Args:
        providers: Know which accounts can rent.
        kinds: Named by the person; empty = no restriction.
        refs: The machines of the fleet file.
    """
    rent = [ref for ref in refs if providers.find_account(ref).open_market() is not None]
    found: dict[tuple[str, str], ProviderRef] = {}
    for kind in kinds or dict.fromkeys(ref.kind for ref in rent) or KINDS:
        # Without a machine there yet, the kind's default account is asked.
        own = [ref for ref in refs if ref.kind == kind] or [ProviderRef(kind=kind, instance="")]
        for ref in own:
            found.setdefault((ref.kind, ref.account), ref)
    return list(found.values())


def new_token(box: str) -> str:
    """Return a random token for a box's creation: up to 40 characters of ``a-z0-9-``.

    It contains the box's name.
    """
    # Maximum characters of a box's name in its token, so that the token has at most 40.
    token_name = 18
    name = re.sub(r"[^a-z0-9]+", "-", box.lower()).strip("-")[:token_name].strip("-") or "box"
    return f"rgt-{name}-{secrets.token_hex(8)}"
