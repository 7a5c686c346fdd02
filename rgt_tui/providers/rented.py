"""Shared base of HTTP platforms' adapters: a reported machine, its meter, its account, its box.

An adapter reads machines (`RentedAccount.fetch_machine`, `fetch_all`) and defines its calls
(`RentedAccount.build_call`). The rest is the same everywhere: nothing is gone unless a complete
list lacks it, nothing unknown is free, nothing is sent twice.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import (
    SYMBOLS,
    BillingVerb,
    FrozenStruct,
    Leftover,
    Lifecycle,
    Meter,
    MeterKind,
    Permit,
    ProviderRef,
    format_amount,
    steady_time,
)
from rgt_tui.profiles import HOURS
from rgt_tui.providers.answers import Parts, sum_known_parts
from rgt_tui.providers.control_plane import (
    BadAnswer,
    Bidder,
    Instance,
    Market,
    NotFound,
    OneMachine,
    PermitRefused,
    ProviderError,
    RequestPause,
    make_printable,
    use_permit,
)
from rgt_tui.providers.http import AccountHttp, HttpAnswer, is_loopback

START = "start"
"""Name of the start call, in addition to the two `BillingVerb`s."""
EVERY = "every"
"""Key of `RequestPacer` for any request."""


def state_of(
    states: Mapping[str, tuple[Lifecycle, MeterKind]], status: object
) -> tuple[Lifecycle, MeterKind]:
    """Return the meaning of a platform's state; both unknown for a state without a row."""
    unknown = (Lifecycle.UNKNOWN, MeterKind.UNKNOWN)
    if isinstance(status, str):
        return states.get(status, unknown)
    return unknown


class RentedMachine(FrozenStruct, kw_only=True):
    """One machine as its platform describes it. None = not given; Unix times, money per hour."""

    id: str
    name: str = ""
    status: str
    """The platform's own name of the model."""
    lifecycle: Lifecycle
    bills: MeterKind
    """What the platform charges in this state, as documented; ``unknown`` if undocumented."""
    compute: float | None = None
    """Price of compute while it is charged; in a state without that charge it is kept, but not
    counted.
    """
    storage: Parts = ()
    """Storage parts charged in this state."""
    at_rest: Parts | None = None
    """Parts charged after a park; None = unknown."""
    outlives: Parts | None = ()
    """Parts charged after a destroy; None = unknown."""
    mounts: tuple[str, ...] = ()
    """Mount points of file systems that outlive it, if the platform reports them."""
    actions: tuple[str, ...] = ()
    """Actions that the platform would accept now, in its own words."""
    host: str | None = None
    port: int | None = None
    user: str | None = None
    gpu: str | None = None
    gpu_count: int | None = None
    region: str | None = None
    created: float | None = None
    started: float | None = None
    billed_since: float | None = None
    """Start of a charge that applies in every state at one price; None = charged only while on."""
    spot: bool | None = None
    least_bid: float | None = None
    """For a spot machine, the minimum bid that keeps it, or gets it back."""
    outbid: bool = False
    """A higher bid has taken it; it is stopped, and still intended to run."""
    ends_at: float | None = None
    out_per_gb: float | None = None
    """Price of outgoing traffic."""
    doubt: str | None = None
    """What the platform leaves unclear about its prices."""


class MachineCall(FrozenStruct):
    """One request that acts on a machine."""

    method: str
    path: str
    body: object = None


class AccountBalance(FrozenStruct):
    """An account's money."""

    amount: float
    """The remaining amount; can be negative."""
    per_hour: float | None = None
    """Hourly cost of all machines of the account; None = not reported, so they are added up."""


class BookedCost(FrozenStruct):
    """A machine's cost in the platform's billing records."""

    amount: float
    at: float
    """Time by the platform's clock."""


class RequestPacer:
    """Spaces requests of one kind, as a platform's documentation requires."""

    def __init__(
        self,
        gaps: Mapping[str, float],
        *,
        ticks: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create a pacer.

        Args:
            gaps: Kind of request → minimum seconds between two; a kind without a row need not wait.
                `EVERY` applies to all requests.
            ticks: Returns seconds of a monotonic clock.
            sleep: Waits that many seconds.
        """
        self._gaps, self._ticks, self._sleep = gaps, ticks, sleep
        self._free: dict[str, float] = {}

    async def wait_turn(self, kind: str) -> None:
        """Wait until a request of that kind may be sent, and reserve the slot."""
        kinds = {kind, EVERY} & self._gaps.keys()
        now = self._ticks()
        at = max((self._free.get(one, now) for one in kinds), default=now)
        # Reserved before the wait, so that two callers do not take the same slot.
        self._free.update({one: max(now, at) + self._gaps[one] for one in kinds})
        if at > now:
            await self._sleep(at - now)


class RentedAccount(abc.ABC):
    """One account at a platform.

    It remembers each machine's last good reading, to distinguish *gone* from *never existed*.
    """

    platform: ClassVar[str]
    """Its name, for messages."""
    api: ClassVar[str] = "API"
    """Name of the API, as in a meter's source."""
    labels: ClassVar[Mapping[BillingVerb, str]]
    """Labels of the console's buttons."""
    words: ClassVar[Mapping[BillingVerb, str]]
    """The words in ``RentedMachine.actions``; a verb that the platform lacks has no row."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """Missing call → reason, for messages."""
    currency: ClassVar[str] = "USD"
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[A-Za-z0-9_-]{1,80}")
    """Format of ids: an id from a file must not be able to name another resource."""
    not_listed: ClassVar[tuple[str, ...]] = ()
    """What may bill besides machines and is missing in the API, e.g. ``load balancers``."""
    gaps: ClassVar[Mapping[str, float]] = {}
    """For `RequestPacer`; applies to the vendor's own servers only."""

    def __init__(self, ref: ProviderRef, http: AccountHttp, clock: Callable[[], float]) -> None:
        """Create an account.

        Args:
            ref: Any machine of it.
            http: Its connections and key.
            clock: Returns Unix time.
        """
        self.ref, self.http, self.clock = ref, http, clock
        self.pace = RequestPacer({} if is_loopback(http.base_url) else self.gaps)
        self._market: Market | None = None
        self.leftover_gaps = self.not_listed
        """See `rgt_tui.providers.leftover_gaps`."""
        self.bidder: Bidder | None = None
        """Changes bids; None = the platform has none."""
        self._seen: dict[str, RentedMachine] = {}
        self._purse: AccountBalance | None = None
        self._purse_pause = RequestPause()
        self._books: dict[str, BookedCost] = {}
        self._books_pause = RequestPause()

    def require_id(self, value: object, lacking: str) -> str:
        """Return an id that the platform gave.

        Raises:
            BadAnswer: it is invalid; `lacking` describes the item.
        """
        if not isinstance(value, str) or not self.ids.fullmatch(value):
            raise self.undocumented_error(lacking)
        return value

    def undocumented_error(self, what: str) -> BadAnswer:
        """Return the error for an undocumented answer."""
        return BadAnswer(
            translate(
                "{platform} sent {what}; it cannot be used", platform=self.platform, what=what
            ),
            console=self.http.console,
        )

    @abc.abstractmethod
    async def fetch_machine(self, instance: str) -> RentedMachine:
        """Request one machine.

        Raises:
            ProviderError: `NotFound` if the platform does not know it, which alone proves nothing.
        """

    @abc.abstractmethod
    async def fetch_all(self) -> tuple[RentedMachine, ...]:
        """Request all machines.

        Raises:
            ProviderError: among others, if the list may be incomplete.
        """

    @abc.abstractmethod
    def build_call(self, what: str, instance: str) -> MachineCall | None:
        """Return the call for `START` or a `BillingVerb`; None = the platform has none (see `lacks`)."""

    async def confirm_answer(self, what: str, answer: HttpAnswer) -> str:
        """Return the meaning of a call's 2xx answer.

        A platform that queues calls waits for the result.

        Raises:
            ProviderError: the answer does not confirm that the call was accepted.
        """
        return self.judge_answer(what, answer.data)

    def judge_answer(self, what: str, data: object) -> str:
        """Return the meaning of a 2xx answer as text.

        Raises:
            ProviderError: the answer does not confirm that the call was accepted.
        """
        return ""

    async def read_purse(self) -> AccountBalance | None:
        """Request the balance; None = the platform has no call for it."""
        return None

    async def read_books(self, machines: tuple[RentedMachine, ...]) -> Mapping[str, float]:
        """Request each machine's cost since its creation, as far as billing records have it."""
        return {}

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """List what is billed besides machines; see `Account.leftovers`."""
        raise ProviderError(
            translate(
                "{platform}'s API does not list volumes: check its console", platform=self.platform
            ),
            console=self.http.console,
            sent=False,
        )

    def open_market(self) -> Market | None:
        """Return the market; None = a person rents machines on the console."""
        return self._market

    def bills_apart(self, verb: BillingVerb) -> tuple[str, ...]:
        """Return what keeps billing after a verb but belongs to no machine, one line each."""
        return ()

    def list_tiers(self, machine: RentedMachine) -> dict[str, str]:
        """Return mount point → name of the profile's storage tier, if the platform reports it."""
        return {}

    def open_control_plane(self, instance: str) -> RentedBox:
        """Return the control plane of one machine."""
        return RentedBox(self, instance)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()

    @property
    def source(self) -> str:
        """The source of a meter."""
        return f"{self.platform} {self.api} at {self.http.host}"

    def find_last_reading(self, instance: str) -> RentedMachine | None:
        """Return the last good reading of a machine."""
        return self._seen.get(instance)

    async def read_machine(self, instance: str) -> RentedMachine:
        """Request one machine, and remember it; see `fetch_machine`."""
        self.check_id(instance)
        found = await self.fetch_machine(instance)
        # A permit names one machine: what another one does proves nothing.
        if found.id != instance:
            raise BadAnswer(
                translate(
                    "{platform} answered with another machine than requested",
                    platform=self.platform,
                ),
                console=self.http.console,
            )
        self._seen[instance] = found
        return found

    async def read_machines(self) -> tuple[RentedMachine, ...]:
        """Request all machines, and remember them; see `fetch_all`."""
        found = await self.fetch_all()
        ids = [one.id for one in found]
        # A list that moved between two pages also lacks a machine, so none may be called gone by
        # it.
        if len(set(ids)) != len(ids):
            raise BadAnswer(
                translate(
                    "{platform}'s list names a machine twice: it changed while it was read; "
                    "ask again",
                    platform=self.platform,
                ),
                console=self.http.console,
            )
        self._seen.update({one.id: one for one in found})
        return found

    async def learn_parts(self, machines: tuple[RentedMachine, ...]) -> None:  # noqa: B027 (most have nothing such)
        """Learn separately priced parts of machines (see `update_prices`), rarely.

        A failure is harmless.
        """

    async def learn_account(self, machines: tuple[RentedMachine, ...]) -> None:
        """Learn balance and billing records, rarely. A failure leaves them unknown."""
        now = self.clock()
        # Seconds before either is read again after a failure, to save the rate limit for more
        # important calls.
        retry_age = 900.0
        if not self._purse_pause.seconds_left(now):
            # An old balance would be shown as if it were current.
            self._purse = None
            # Begun before the request: a failure must not repeat with every poll.
            self._purse_pause.begin(now, retry_age)
            with contextlib.suppress(ProviderError):
                purse = await self.read_purse()
                # Seconds for which a balance is valid.
                balance_age = 300.0
                self._purse_pause.begin(now, balance_age)
                if purse is not None and purse.per_hour is None:
                    purse = msgspec.structs.replace(purse, per_hour=self._sum_hourly_cost(machines))
                self._purse = purse
        if machines and not self._books_pause.seconds_left(now):
            # As above: begun before the request.
            self._books_pause.begin(now, retry_age)
            with contextlib.suppress(ProviderError):
                found = await self.read_books(machines)
                # Seconds for which billing records are valid: they lag by minutes.
                spend_age = 300.0
                self._books_pause.begin(now, spend_age)
                at = self.http.server_time()
                self._books.update(
                    {instance: BookedCost(amount, at) for instance, amount in found.items()}
                )

    def update_prices(self, prices: Mapping[str, float | None]) -> None:
        """Set the prices of parts by name, also for machines seen before."""

        def reprice_parts(parts: Parts) -> Parts:
            return tuple((name, prices.get(name, rate)) for name, rate in parts)

        for one in self._seen.values():
            at_rest = None
            if one.at_rest is not None:
                at_rest = reprice_parts(one.at_rest)
            outlives = None
            if one.outlives is not None:
                outlives = reprice_parts(one.outlives)
            self._seen[one.id] = msgspec.structs.replace(
                one, storage=reprice_parts(one.storage), at_rest=at_rest, outlives=outlives
            )

    def _sum_hourly_cost(self, machines: tuple[RentedMachine, ...]) -> float | None:
        """Return the hourly cost of all machines; None if any is unknown."""
        # A lower bound is no rate: a sum with it would look exact.
        rates = [meter.per_hour for meter in map(self.build_meter, machines) if not meter.at_least]
        known = [rate for rate in rates if rate is not None]
        # One unknown price makes the sum unknown, not smaller.
        if len(known) == len(machines):
            return sum(known)
        return None

    def check_id(self, instance: str) -> None:
        """Refuse an id in the wrong format for this platform.

        Raises:
            BadAnswer: nothing was sent.
        """
        if not self.ids.fullmatch(instance):
            raise BadAnswer(
                translate(
                    "{instance!r} is not an id of {platform}; correct the instance in the "
                    "fleet file",
                    instance=make_printable(instance, 80),
                    platform=self.platform,
                ),
                console=self.http.console,
                sent=False,
            )

    def build_error_meter(self, why: str) -> Meter:
        """Return the meter of a machine whose state could not be read."""
        return Meter(at=self.clock(), source=self.source, currency=self.currency, error=why)

    def build_meter(self, machine: RentedMachine) -> Meter:
        """Return the meter of a machine as just read."""
        if machine.lifecycle is Lifecycle.GONE:
            return self.build_gone_meter(machine)
        now, bills = self.http.server_time(), machine.bills
        storage, unpriced = sum_known_parts(machine.storage)
        runs = bills in (MeterKind.COMPUTE_AND_STORAGE, MeterKind.UNKNOWN)
        # A price of 0 for something that is charged counts as unknown.
        if runs:
            compute = machine.compute or None
        else:
            compute = 0.0
        if not runs:
            per_hour = storage
        elif compute is None:
            per_hour = None
        else:
            per_hour = compute + (storage or 0.0)
        doubt = machine.doubt
        # Counted as running: unknown must never look free.
        if bills is MeterKind.UNKNOWN and per_hour is not None:
            state = f"the state {machine.status}"
            doubt = translate(
                "what {platform} charges in {state} is not documented: counted as running",
                platform=self.platform,
                state=state,
            )
        source, since, spent = self.source, machine.created, None
        booked = self._books.get(machine.id)
        on = bills is MeterKind.COMPUTE_AND_STORAGE and per_hour is not None
        if booked is not None:
            # Billing records are read rarely; between two readings the meter extrapolates by the
            # provider's clock.
            spent = booked.amount + (
                max(0.0, now - booked.at) / 3600.0 * (per_hour or 0.0) if on else 0.0
            )
        elif on and (begun := machine.billed_since or machine.started) is not None:
            spent, since = max(0.0, now - begun) / 3600.0 * (per_hour or 0.0), begun
            counted = translate("uptime")
            if machine.billed_since:
                counted = translate("age")
            source = translate(
                "{source}; spent is an estimate: price × {counted}", source=source, counted=counted
            )
        estimated = booked is None and spent is not None
        answers = machine.lifecycle in (Lifecycle.STARTING, Lifecycle.RUNNING)
        spent_since = None
        if spent is not None:
            spent_since = since
        # An address of a stopped machine may belong to another person by now.
        ssh_host = None
        ssh_port = None
        if answers:
            ssh_host = machine.host
            ssh_port = machine.port
        balance = None
        burn_per_hour = None
        if self._purse is not None:
            balance = self._purse.amount
            burn_per_hour = self._purse.per_hour
        booked_amount = None
        booked_at = None
        if booked is not None:
            booked_amount = booked.amount
            booked_at = booked.at
        return Meter(
            kind=bills,
            lifecycle=machine.lifecycle,
            per_hour=per_hour,
            compute_per_hour=compute,
            storage_per_hour=storage,
            spent=spent,
            spent_since=spent_since,
            currency=self.currency,
            at=self.clock(),
            source=source,
            native_status=machine.status,
            actions=machine.actions,
            ssh_host=ssh_host,
            ssh_port=ssh_port,
            created=machine.created,
            started=machine.started,
            balance=balance,
            burn_per_hour=burn_per_hour,
            at_least=per_hour is not None and bool(unpriced),
            unpriced=unpriced,
            spent_at_least=booked is not None and on and bool(unpriced),
            spent_estimated=estimated,
            clock_skew=self.http.skew,
            doubt=doubt,
            booked=booked_amount,
            booked_at=booked_at,
            spot=machine.spot,
            ends_at=machine.ends_at,
            out_per_gb=machine.out_per_gb,
        )

    def build_gone_meter(self, machine: RentedMachine) -> Meter:
        """Return the meter of a machine that no longer exists; what outlives it keeps billing."""
        storage, unpriced = sum_known_parts(machine.outlives or ())
        kind, source = MeterKind.NONE, self.source
        if machine.outlives is None:
            kind, storage = MeterKind.UNKNOWN, None
            source = translate("{source}; unknown whether a disk of it was kept", source=source)
        elif machine.outlives:
            kind = MeterKind.STORAGE_ONLY
            source = translate(
                "{source}; {join} bills until it is deleted",
                source=source,
                join=", ".join(name for name, _ in machine.outlives),
            )
        booked = self._books.get(machine.id)
        status = "not in the list"
        if machine.lifecycle is Lifecycle.GONE:
            status = machine.status
        spent = None
        spent_since = None
        if booked is not None:
            spent = booked.amount
            spent_since = machine.created
        return Meter(
            kind=kind,
            lifecycle=Lifecycle.GONE,
            per_hour=storage,
            compute_per_hour=0.0,
            storage_per_hour=storage,
            spent=spent,
            spent_since=spent_since,
            currency=self.currency,
            at=self.clock(),
            source=source,
            native_status=status,
            at_least=storage is not None and bool(unpriced),
            unpriced=unpriced,
            spot=machine.spot,
        )

    def describe_prices(self, parts: Parts) -> tuple[str, ...]:
        """Return a line for each part: its price per hour and month."""
        symbol = SYMBOLS.get(self.currency)
        lines = []
        for name, rate in parts:
            if rate is None:
                lines.append(translate("{name}, price unknown", name=name))
                continue
            hour = f"{rate:.4f} {self.currency}"
            if symbol:
                hour = f"{symbol}{rate:.4f}"
            month = format_amount(rate * HOURS["GB-month"], self.currency)
            lines.append(
                translate(
                    "{name}: {hour}/h ({month} a month) until it is deleted",
                    name=name,
                    hour=hour,
                    month=month,
                )
            )
        return tuple(lines)

    def build_instance(self, machine: RentedMachine) -> Instance:
        """Return a machine as shown in a list."""
        return Instance(
            id=machine.id,
            name=machine.name,
            meter=self.build_meter(machine),
            host=machine.host,
            port=machine.port,
            user=machine.user,
            gpu=machine.gpu,
            gpu_count=machine.gpu_count,
            region=machine.region,
            below=self.find_underlying_id(machine),
        )

    def find_underlying_id(self, machine: RentedMachine) -> str | None:
        """Return the machine's id at the underlying platform; None = none, or unknown."""
        return None


class RentedBox(OneMachine["RentedAccount"]):
    """One machine's control plane; see `Provider`."""

    @property
    def console_url(self) -> str:
        """The platform's console, or the server itself if it is not the vendor's."""
        return self._account.http.console

    async def read(self, instance: str) -> Meter:
        """Read one machine; see `Provider.read`."""
        account = self._account
        try:
            machine = await account.read_machine(instance)
            await account.learn_parts((machine,))
            return account.build_meter(account.find_last_reading(instance) or machine)
        except NotFound:
            return await self._read_absent(instance)
        except ProviderError as error:
            return account.build_error_meter(str(error))

    async def _read_absent(self, instance: str) -> Meter:
        """Return the meter of an unknown machine; gone only if the complete list lacks it, too."""
        account = self._account
        before = account.find_last_reading(instance)
        try:
            machines = await account.read_machines()
        except ProviderError as error:
            return account.build_error_meter(
                translate("not there, but the list could not confirm it: {error}", error=error)
            )
        if any(one.id == instance and one.lifecycle is not Lifecycle.GONE for one in machines):
            return account.build_error_meter(
                translate(
                    "not there, but {platform}'s list still shows it; ask again",
                    platform=account.platform,
                )
            )
        seen = account.find_last_reading(instance) or before
        if seen is not None:
            return account.build_gone_meter(seen)
        # A wrong id or another account's key looks the same, so the meter is unknown, not off.
        return Meter(
            lifecycle=Lifecycle.GONE,
            at=account.clock(),
            currency=account.currency,
            source=translate(
                "{source}; not in this account, never seen there", source=account.source
            ),
        )

    async def list(self) -> tuple[Instance, ...]:
        """List the account's machines with their meters."""
        machines = await self._account.read_machines()
        account = self._account
        await account.learn_parts(machines)
        await account.learn_account(machines)
        return tuple(
            account.build_instance(account.find_last_reading(one.id) or one) for one in machines
        )

    async def start(self) -> str:
        """Start the machine; see `Provider.start`."""
        return await self._send_call(START)

    async def stop(self, permit: Permit) -> str:
        """Park the machine; see `Provider.stop`."""
        use_permit(permit, BillingVerb.PARK, self.ref, steady_time())
        return await self._send_call(BillingVerb.PARK)

    async def destroy(self, permit: Permit) -> str:
        """Destroy the machine; see `Provider.destroy`."""
        use_permit(permit, BillingVerb.DESTROY, self.ref, steady_time())
        return await self._send_call(BillingVerb.DESTROY)

    async def _send_call(self, what: str) -> str:
        account = self._account
        try:
            account.check_id(self._instance)
        except BadAnswer as error:
            raise PermitRefused(str(error)) from None
        call = account.build_call(what, self._instance)
        if call is None:
            raise ProviderError(
                translate("{what}; nothing was sent", what=self._why_not(what)),
                console=self.console_url,
                sent=False,
            )
        await account.pace.wait_turn(what)
        answer = await account.http.send(call.method, call.path, call.body)
        said = await account.confirm_answer(what, answer)
        return f"{account.http.host} answered {answer.status}{f', {said}' if said else ''}"

    def _why_not(self, what: str) -> str:
        return translate(self._account.lacks.get(what, "")) or translate(
            "{platform}'s API has no call for {what}", platform=self._account.platform, what=what
        )

    def describe_call(self, verb: BillingVerb, instance: str) -> str:
        """Return the exact call."""
        call = self._account.build_call(verb, instance)
        if call is None:
            return f"nothing: {self._why_not(verb)}"
        text = f"{call.method} {self._account.http.base_url}{make_printable(call.path)}"
        if call.body is None:
            return text
        return f"{text} {make_printable(msgspec.json.encode(call.body).decode())}"

    def native_label(self, verb: BillingVerb) -> str:
        """Return the label of the console's button."""
        return self._account.labels.get(verb, "")

    def native_action(self, verb: BillingVerb) -> str:
        """Return the word used in ``RentedMachine.actions``.

        For a missing verb, one that never occurs there.
        """
        return self._account.words.get(verb, verb.value)

    def list_kept_charges(self, verb: BillingVerb, instance: str) -> tuple[str, ...]:
        """Return what keeps billing after the verb, by the last good reading of the machine."""
        account = self._account
        machine = account.find_last_reading(instance)
        if machine is None:
            return (
                translate(
                    "unknown: the machine has not been read; check {console_url}",
                    console_url=self.console_url,
                ),
            )
        if verb is BillingVerb.PARK:
            parts = machine.at_rest
        else:
            parts = machine.outlives
        if parts is None:
            return (
                translate(
                    "unknown: {platform} does not report what it keeps", platform=account.platform
                ),
            )
        return (*account.describe_prices(parts), *account.bills_apart(verb))

    def list_tiers(self, instance: str) -> dict[str, str]:
        """Return the storage tier at each mount point."""
        machine = self._account.find_last_reading(instance)
        if machine is None:
            return {}
        return self._account.list_tiers(machine)
