"""RunPod's REST v2 (https://docs.runpod.io/api-reference-v2/overview): read, list, stop, terminate.

Stop and terminate calls are sent once and never repeated automatically; `runpod_market` creates
pods.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rgt_tui.language import translate
from rgt_tui.model import (
    BillingVerb,
    FrozenStruct,
    Leftover,
    Lifecycle,
    Meter,
    MeterKind,
    MoneyAmount,
    Permit,
    ProviderRef,
    steady_time,
)
from rgt_tui.profiles import HOURS, load_profile
from rgt_tui.profiles.survival import until_clock
from rgt_tui.providers.answers import (
    AnswerProof,
    Parts,
    as_object,
    names_next_page,
    parse_number,
    parse_signed,
    parse_text,
    sum_known_parts,
)
from rgt_tui.providers.control_plane import (
    AccountContext,
    BadAnswer,
    Instance,
    NotFound,
    OneMachine,
    PermitRefused,
    ProviderError,
    RequestPause,
    StateConflict,
    make_printable,
    use_permit,
)
from rgt_tui.providers.http import AccountHttp, HttpAnswer, open_http
from rgt_tui.providers.runpod_market import RunPodMarket
from rgt_tui.providers.runpod_pod import (
    ID,
    Pod,
    list_leftovers,
    network_per_hour,
    parse_pod,
    price_of,
    read_list,
)

VENDOR = "https://api.runpod.io"
CONSOLE = "https://console.runpod.io/pods"
KEY_ENV = "RUNPOD_API_KEY"

SPEND_AGE = 60.0
"""Seconds for which a spend figure is valid; RunPod's billing itself runs every 5 minutes."""
SPEND_RETRY = 300.0
"""Seconds before a failed spend query is retried, to save the rate limit for more important calls.
"""
NO_FREE_GPU = "not enough free GPUs on the host machine"
"""https://github.com/runpod/runpod-python/issues/168 (2026-11); REST v2 sends it as a 400 with only
``error``.
"""
BALANCE_PATH = "/graphql"
"""Only RunPod's GraphQL API reports the balance; RunPod plans to retire it early in 2027.
https://docs.runpod.io/sdks/graphql/manage-pods; fields ``myself.clientBalance`` ($),
``myself.currentSpendPerHr``.
"""
BALANCE_QUERY = "query { myself { clientBalance currentSpendPerHr } }"
REFUSALS: dict[int | str, AnswerProof] = {
    401: AnswerProof.NOTHING,
    403: AnswerProof.NOTHING,
    404: AnswerProof.ASK,
    409: AnswerProof.ASK,
    422: AnswerProof.NOTHING,
    429: AnswerProof.NOTHING,
}
"""Errors of REST v2, all as problem+json: https://docs.runpod.io/api-reference-v2/overview
(verified 2026-11).
"""
ANSWERS = dict.fromkeys(BillingVerb, REFUSALS)


def open_account(ref: ProviderRef, context: AccountContext) -> RunPodAccount:
    """Return the account that a pod belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref,
        context,
        vendor=VENDOR,
        console=CONSOLE,
        key_env=KEY_ENV,
        vendor_files=((".runpod/config.toml", key_of_tools),),
    )
    return RunPodAccount(ref, http, context.clock, tells_balance=http.base_url == VENDOR)


def key_of_tools(path: Path) -> str:
    """Return the key stored by RunPod's own tools; empty without one.

    Two formats: runpodctl's (``apikey = "…"``) and runpod-python's (``[default]`` ``api_key =
    "…"``): https://docs.runpod.io/runpodctl/overview and https://github.com/runpod/runpod-python
    """
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return ""
    section = data.get("default")
    for value in (
        # runpodctl's place first, then that of runpod-python.
        data.get("apikey"),
        section.get("api_key") if isinstance(section, dict) else None,
    ):
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


class RunPodBox(OneMachine["RunPodAccount"]):
    """One pod's control plane."""

    def __init__(
        self, account: RunPodAccount, instance: str, *, clock: Callable[[], float]
    ) -> None:
        super().__init__(account, instance)
        self._clock = clock

    @property
    def console_url(self) -> str:
        """RunPod's console, or the server itself if it is not RunPod's."""
        return self._account.http.console

    async def read(self, instance: str) -> Meter:
        """Read one pod; see `Provider.read`."""
        try:
            _check_id(instance)
            pod = await self._account.read_pod(instance)
            if pod.networks:
                await self._account.learn_volumes()
            return self._account.build_meter(pod, await self._account.read_billed_cost(pod))
        except NotFound:
            return await self._read_absent(instance)
        except ProviderError as error:
            return self._build_error_meter(str(error))

    async def _read_absent(self, instance: str) -> Meter:
        """Return the meter after a 404: gone only if the complete list lacks the pod as well."""
        try:
            pods = await self._account.read_pods()
        except ProviderError as error:
            return self._build_error_meter(
                translate("404, but the list could not confirm it: {error}", error=error)
            )
        # 404 alone proves nothing: only a complete list without the pod does.
        if any(pod.id == instance and pod.lifecycle is not Lifecycle.GONE for pod in pods):
            return self._build_error_meter(
                translate("404, but RunPod's list still shows the pod; ask again")
            )
        pod = self._account.find_last_reading(instance)
        if pod is not None:
            return self._account.build_gone_meter(pod, self._account.last_billed_cost(pod))
        # A wrong id or another account's key looks the same, so the meter is unknown, not off.
        return Meter(
            lifecycle=Lifecycle.GONE,
            at=self._clock(),
            source=f"RunPod REST v2 at {self._account.http.host}; not in this account, never seen "
            "there",
        )

    def _build_error_meter(self, why: str) -> Meter:
        return Meter(
            at=self._clock(), source=f"RunPod REST v2 at {self._account.http.host}", error=why
        )

    async def list(self) -> tuple[Instance, ...]:
        """List the account's pods with their meters."""
        pods = await self._account.read_pods()
        if any(pod.networks for pod in pods):
            await self._account.learn_volumes()
        await self._account.learn_spend(pods)
        await self._account.learn_balance()
        return tuple(self._account.build_instance(pod) for pod in pods)

    async def start(self) -> str:
        """Start the pod; see `Provider.start`. RunPod refuses if its host has no free GPU."""
        _check_id(self._instance)
        path = f"/v2/pods/{self._instance}/action"
        try:
            answer = await self._account.http.send("POST", path, {"action": "start"})
        except BadAnswer as error:
            # By its text, because the answer has no code.
            if NO_FREE_GPU not in str(error):
                raise
            raise StateConflict(
                translate(
                    "RunPod cannot start the pod now ({no_free_gpu}): the GPUs of its machine "
                    "are rented "
                    "to others. Until one is free, perhaps for days, its volume disk cannot "
                    "be reached; "
                    "it is billed until the pod is terminated",
                    no_free_gpu=NO_FREE_GPU,
                ),
                console=self.console_url,
                status=error.status,
            ) from None
        return f"{self._account.http.host} answered {answer.status}"

    async def stop(self, permit: Permit) -> str:
        """Stop the pod; see `Provider.stop`. It erases the container disk.

        The volume disk keeps billing.
        """
        return await self._send_action(permit, BillingVerb.PARK)

    async def destroy(self, permit: Permit) -> str:
        """Terminate the pod; see `Provider.destroy`."""
        return await self._send_action(permit, BillingVerb.DESTROY)

    async def _send_action(self, permit: Permit, verb: BillingVerb) -> str:
        # Used up before anything can fail: it cannot send a second call.
        use_permit(permit, verb, self.ref, steady_time())
        try:
            _check_id(self._instance)
        except BadAnswer as error:
            raise PermitRefused(str(error)) from None
        method, path, body = _build_call(verb, self._instance)
        answer = await self._account.http.send(method, path, body)
        said = ""
        if isinstance(answer.data, dict) and isinstance(answer.data.get("status"), str):
            said = f", status {make_printable(answer.data['status'], 40)}"
        return f"{self._account.http.host} answered {answer.status}{said}"

    def describe_call(self, verb: BillingVerb, instance: str) -> str:
        """Return the exact call."""
        method, path, body = _build_call(verb, instance)
        text = f"{method} {self._account.http.base_url}{make_printable(path)}"
        if body:
            return f'{text} {{"action":"{body["action"]}"}}'
        return text

    def native_label(self, verb: BillingVerb) -> str:
        """Return the label of the console's button."""
        if verb is BillingVerb.PARK:
            return "Stop"
        return "Terminate"

    def native_action(self, verb: BillingVerb) -> str:
        """Return the word used in a pod's ``actions``."""
        if verb is BillingVerb.PARK:
            return "stop"
        return "terminate"

    def list_kept_charges(self, verb: BillingVerb, instance: str) -> tuple[str, ...]:
        """Return what keeps billing after the verb, by the last good reading of the pod."""
        pod = self._account.find_last_reading(instance)
        if pod is None:
            return (
                translate(
                    "unknown: the pod has not been read; check {console_url}",
                    console_url=self.console_url,
                ),
            )
        lines = []
        if verb is BillingVerb.PARK and pod.volume_gb is None:
            lines.append(translate("the volume disk, if it has one (not reported by RunPod)"))
        elif verb is BillingVerb.PARK and pod.volume_gb:
            lines.append(_volume_line(pod))
        for mount in pod.networks or ():
            price = self._account.volume_price(mount.volume)
            if price is None:
                cost = "price unknown"
            else:
                cost = f"${price:.4f}/h"
            lines.append(
                translate(
                    "network volume {volume} at {path}: {cost} until the volume is deleted",
                    volume=mount.volume,
                    path=mount.path,
                    cost=cost,
                )
            )
        if pod.networks is None:
            lines.append(translate("a network volume, if one is mounted (not reported by RunPod)"))
        return tuple(lines)

    def list_tiers(self, instance: str) -> dict[str, str]:
        """Return the storage tier at each mount point.

        Both kinds of volume may be at /workspace.
        """
        pod = self._account.find_last_reading(instance)
        # Without knowledge of the mounts, a path could be called lost that is on a network volume.
        if pod is None or pod.networks is None:
            return {}
        tiers = {"/": "container-disk"}
        if pod.volume_gb:
            tiers[pod.volume_path] = "volume-disk"
        tiers.update((mount.path, "network-volume") for mount in pod.networks)
        return tiers


def _volume_line(pod: Pod) -> str:
    """Return what a pod's volume disk costs while it is stopped, compared with while it runs."""
    size = pod.volume_gb or 0.0
    stopped, running = (price_of("volume-disk", size, running=on) for on in (False, True))
    what = f"volume disk {pod.volume_path}, {size:g} GB"
    if stopped is None:
        return translate("{what}, price unknown", what=what)
    against = ""
    if running:
        against = translate(", {value:.2g} times its running rate", value=stopped / running)
    month = stopped * HOURS["GB-month"]
    until = until_clock(load_profile("runpod"), MoneyAmount(stopped))
    text = translate(
        "{what}: ${stopped:.4f}/h (${month:.2f} a month{against}) until the pod is terminated",
        what=what,
        stopped=stopped,
        month=month,
        against=against,
    )
    return "; ".join(filter(None, (text, until)))


def _build_call(verb: BillingVerb, instance: str) -> tuple[str, str, dict[str, str] | None]:
    if verb is BillingVerb.PARK:
        return "POST", f"/v2/pods/{instance}/action", {"action": "stop"}
    return "DELETE", f"/v2/pods/{instance}", None


def _check_id(instance: str) -> None:
    if not ID.fullmatch(instance):
        raise BadAnswer(
            translate(
                "{instance!r} is not a RunPod id; correct the instance in the fleet file",
                instance=make_printable(instance, 80),
            ),
            console=CONSOLE,
            sent=False,
        )


DISKS_IN_PRICE = (
    "RunPod does not report whether a pod's price includes its disks: they are added to it"
)
"""https://docs.runpod.io/api-reference-v2/overview: ``cost`` is $ per hour, without storage while
stopped.
"""


class PodSpend(FrozenStruct):
    """One pod's cost in the provider's billing records."""

    amount: float | None
    """None = they could not be read."""
    at: float
    there: float
    """The same time by RunPod's clock."""


class RunPodAccount:
    """One RunPod account.

    It remembers each pod's last good reading, to distinguish *gone* from *never existed*.
    """

    def __init__(
        self,
        ref: ProviderRef,
        http: AccountHttp,
        clock: Callable[[], float],
        *,
        tells_balance: bool = False,
    ) -> None:
        """Create an account.

        Args:
            ref: Any pod of it.
            http: Its connections and key.
            clock: Returns Unix time.
            tells_balance: The server is RunPod's own, which has an API for the balance.
        """
        self.ref = ref
        self.http = http
        self._balance: AccountBalance | None = None
        self._tells_balance = tells_balance
        self._balance_pause = RequestPause()
        self._clock = clock
        self._seen: dict[str, Pod] = {}
        self.leftover_gaps: tuple[str, ...] = ()
        """See `rgt_tui.providers.leftover_gaps`."""
        self._spend: dict[str, PodSpend] = {}
        self._spend_pause = RequestPause()
        self._volumes: dict[str, float | None] = {}
        self._volumes_pause = RequestPause()

    def open_control_plane(self, instance: str) -> RunPodBox:
        """Return the control plane of one pod."""
        return RunPodBox(self, instance, clock=self._clock)

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """List what bills besides pods: network volumes, serverless endpoints and clusters."""
        found, self.leftover_gaps = await list_leftovers(self.http, tuple(self._seen.values()))
        return found

    def open_market(self) -> RunPodMarket:
        """Return the market that rents pods."""
        return RunPodMarket(self.http, self.ref, read=self._parse_created, pods=self._instances)

    def _parse_created(self, raw: object) -> Instance:
        pod = parse_pod(raw, self.http.console)
        self._seen[pod.id] = pod
        return self.build_instance(pod)

    async def _instances(self) -> tuple[Instance, ...]:
        return tuple(self.build_instance(pod) for pod in await self.read_pods())

    def build_instance(self, pod: Pod) -> Instance:
        """Return a pod as shown in the account's list."""
        return Instance(
            id=pod.id,
            name=pod.name,
            meter=self.build_meter(pod, self.last_billed_cost(pod)),
            host=pod.host,
            port=pod.port,
            user=pod.user,
            gpu=pod.gpu,
            gpu_count=pod.gpu_count,
            region=pod.region,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()

    def find_last_reading(self, instance: str) -> Pod | None:
        """Return the last good reading of a pod."""
        return self._seen.get(instance)

    async def read_pods(self) -> tuple[Pod, ...]:
        """Return all pods, including those of clusters, which the default hides.

        Raises:
            ProviderError: among others, if the list may be incomplete.
        """
        # Pods of a cluster are left out by default, and are billed like others.
        rows = await read_list(self.http, "/v2/pods?includeClusterPods=true", "pods", "pods")
        pods = tuple(parse_pod(raw, self.http.console) for raw in rows)
        if len({pod.id for pod in pods}) != len(pods):
            raise BadAnswer(
                translate(
                    "RunPod's list names a pod twice: it changed while it was read; ask again"
                ),
                console=self.http.console,
            )
        self._seen.update((pod.id, pod) for pod in pods)
        return pods

    async def read_pod(self, instance: str) -> Pod:
        """Return one pod.

        Raises:
            ProviderError: `NotFound` for a 404, which alone proves nothing.
        """
        pod = parse_pod((await self.http.get(f"/v2/pods/{instance}")).data, self.http.console)
        if pod.id != instance:
            raise BadAnswer(
                translate("RunPod answered with another pod than requested"),
                console=self.http.console,
            )
        self._seen[instance] = pod
        return pod

    async def read_billed_cost(self, pod: Pod) -> float | None:
        """Return the pod's cost since its creation from the billing records.

        None = not available.
        """
        now = self._clock()
        known = self._spend.get(pod.id)
        if known and 0 <= now - known.at < (SPEND_AGE if known.amount is not None else SPEND_RETRY):
            return known.amount
        amount = None
        query = f"/v2/billing/pods?podId={pod.id}&bucketSize=day"
        # Without a start, the period would be chosen by RunPod.
        if pod.created is not None:
            query += f"&startTime={_format_utc(pod.created)}"
        # An estimate is used instead, and labelled as such.
        with contextlib.suppress(ProviderError):
            amount = _sum_records(await self.http.get(query), pod.id)
        # The last known sum is a better lower bound than none.
        if amount is None and known is not None:
            amount = known.amount
        self._spend[pod.id] = PodSpend(amount=amount, at=now, there=self.http.server_time())
        return amount

    async def learn_spend(self, pods: tuple[Pod, ...]) -> None:
        """Read the cost of all pods with one query a minute, to stay within the rate limit."""
        now = self._clock()
        created = [pod.created for pod in pods if pod.created is not None]
        if not created or self._spend_pause.seconds_left(now):
            return
        # Begun before the request, and shortened after a success.
        self._spend_pause.begin(now, SPEND_RETRY)
        query = f"/v2/billing/pods?bucketSize=month&startTime={_format_utc(min(created))}"
        with contextlib.suppress(ProviderError):
            books = await self.http.get(query)
            self._spend_pause.begin(now, SPEND_AGE)
            for pod in pods:
                # strict: in the books of the whole account, a record without a pod's id may be of
                # another.
                amount = _sum_records(books, pod.id, strict=True)
                if amount is not None:
                    self._spend[pod.id] = PodSpend(
                        amount=amount, at=now, there=self.http.server_time()
                    )

    async def learn_balance(self) -> None:
        """Learn the account's balance, at most every five minutes; a failure leaves it unknown."""
        now = self._clock()
        if not self._tells_balance or self._balance_pause.seconds_left(now):
            return
        # An old balance would look current while the request fails.
        self._balance = None
        # Seconds before it is read again after a failure: a retired API must not use up the rate
        # limit.
        balance_retry = 3600.0
        self._balance_pause.begin(now, balance_retry)
        with contextlib.suppress(ProviderError):
            self._balance = await read_balance(self.http)
            # Seconds for which a balance is valid.
            balance_age = 300.0
            self._balance_pause.begin(now, balance_age)

    def last_billed_cost(self, pod: Pod) -> float | None:
        """Return the last spend figure without a request."""
        known = self._spend.get(pod.id)
        if known:
            return known.amount
        return None

    async def learn_volumes(self) -> None:
        """Learn the network volumes' prices, at most every ten minutes.

        A failure leaves them unknown.
        """
        now = self._clock()
        if self._volumes_pause.seconds_left(now):
            return
        volumes_age = 600.0
        self._volumes_pause.begin(now, volumes_age)
        try:
            items = await read_list(
                self.http, "/v2/network-volumes", "networkVolumes", "network volumes"
            )
        except ProviderError:
            return
        for item in map(as_object, items):
            volume, size = parse_text(item.get("id"), 80), parse_number(item.get("size"))
            if volume is not None and size is not None:
                self._volumes[volume] = network_per_hour(size, str(item.get("type")))

    def volume_price(self, volume: str) -> float | None:
        """Return the hourly price of a network volume, if known."""
        return self._volumes.get(volume)

    def list_storage(self, pod: Pod, *, running: bool) -> Parts:
        """Return the billed storage of a pod: its own disks, and its network volumes.

        A volume mounted by several pods counts for each of them: too much rather than too little.
        """
        return (*pod.list_disks(running=running), *self._list_networks(pod))

    def _list_networks(self, pod: Pod) -> Parts:
        if pod.networks is None:
            return (("network volume, if there is one", None),)
        return tuple(
            (f"network volume {one.volume}", self.volume_price(one.volume)) for one in pod.networks
        )

    def build_meter(self, pod: Pod, spent: float | None) -> Meter:
        """Return the meter of a pod as just read."""
        now = self.http.server_time()
        life = pod.lifecycle
        on = life in (Lifecycle.STARTING, Lifecycle.RUNNING) or (
            # A price in a state that should have none: it is counted, see below.
            life is not Lifecycle.UNKNOWN and bool(pod.cost)
        )
        compute, doubt = pod.cost, None
        unpriced: tuple[str, ...] = ()
        storage: float | None = None
        per_hour: float | None = None
        kind = MeterKind.UNKNOWN
        if on:
            # A price of 0 is documented only for stopped pods; for a running one it is not
            # believed.
            compute = pod.cost or None
            kind = MeterKind.COMPUTE_AND_STORAGE
            storage, unpriced = sum_known_parts(self.list_storage(pod, running=True))
            if compute is None:
                per_hour = None
            else:
                per_hour = compute + (storage or 0.0)
            if per_hour is not None and storage:
                doubt = DISKS_IN_PRICE
            else:
                doubt = None
            # The price decides: a state that is wrong must not hide a bill.
            if life in (Lifecycle.STOPPED, Lifecycle.GONE):
                doubt = translate(
                    "RunPod reports {status} but still a price: counted as running",
                    status=pod.status,
                )
        elif life is Lifecycle.STOPPED:
            # ``cost`` is 0.0 here, although the volume disk bills at twice its running rate.
            compute = 0.0
            storage, unpriced = sum_known_parts(self.list_storage(pod, running=False))
            kind, per_hour = self._choose_stopped_kind(pod, storage), storage
        elif life is Lifecycle.GONE:
            return self.build_gone_meter(pod, spent)
        else:
            compute = pod.cost or None
        source, since = f"RunPod REST v2 at {self.http.host}", pod.created
        booked = self._spend.get(pod.id)
        ran_on = spent is not None and booked is not None and on and per_hour is not None
        if spent is not None and booked is not None and ran_on:
            # Billing records are read once a minute; between two readings the meter extrapolates.
            spent += max(0.0, now - booked.there) / 3600.0 * (per_hour or 0.0)
        estimated = spent is None and on and pod.started is not None and per_hour is not None
        if estimated:
            spent = max(0.0, now - (pod.started or now)) / 3600.0 * (per_hour or 0.0)
            source, since = (
                translate("{source}; spent is an estimate: cost × uptime", source=source),
                pod.started,
            )
        spent_since = None
        if spent is not None:
            spent_since = since
        balance = None
        burn_per_hour = None
        if self._balance is not None:
            balance = self._balance.amount
            burn_per_hour = self._balance.per_hour
        # A stopped pod's address may be another pod's by now.
        ssh_host = None
        ssh_port = None
        if on:
            ssh_host = pod.host
            ssh_port = pod.port
        booked_amount = None
        if booked is not None:
            booked_amount = booked.amount
        booked_at = None
        if booked is not None and booked.amount is not None:
            booked_at = booked.at
        return Meter(
            kind=kind,
            lifecycle=life,
            per_hour=per_hour,
            compute_per_hour=compute,
            storage_per_hour=storage,
            spent=spent,
            spent_since=spent_since,
            at=self._clock(),
            source=source,
            native_status=pod.status + (" (locked)" if pod.locked else ""),
            actions=pod.actions,
            balance=balance,
            burn_per_hour=burn_per_hour,
            ssh_host=ssh_host,
            ssh_port=ssh_port,
            at_least=per_hour is not None and bool(unpriced),
            unpriced=unpriced,
            spent_at_least=bool(unpriced) and ran_on,
            spent_estimated=estimated,
            clock_skew=self.http.skew,
            doubt=doubt,
            booked=booked_amount,
            booked_at=booked_at,
            created=pod.created,
            started=pod.started,
        )

    def build_gone_meter(self, pod: Pod, spent: float | None) -> Meter:
        """Return the meter of a pod that no longer exists.

        A network volume outlives it and bills.
        """
        storage, unpriced = sum_known_parts(self._list_networks(pod))
        source = f"RunPod REST v2 at {self.http.host}"
        if pod.networks == ():
            kind = MeterKind.NONE
        else:
            kind = MeterKind.STORAGE_ONLY
        if pod.networks is None:
            kind, source = (
                MeterKind.UNKNOWN,
                translate("{source}; unknown whether it had a network volume", source=source),
            )
        elif pod.networks:
            source += translate("; its network volume is billed until it is deleted")
        status = "404 and not in the list"
        if pod.lifecycle is Lifecycle.GONE:
            status = pod.status
        spent_since = None
        if spent is not None:
            spent_since = pod.created
        return Meter(
            kind=kind,
            lifecycle=Lifecycle.GONE,
            per_hour=storage,
            compute_per_hour=0.0,
            storage_per_hour=storage,
            spent=spent,
            spent_since=spent_since,
            at=self._clock(),
            source=source,
            native_status=status,
            at_least=storage is not None and bool(unpriced),
            unpriced=unpriced,
        )

    @staticmethod
    def _choose_stopped_kind(pod: Pod, storage: float | None) -> MeterKind:
        """Return what a stopped pod bills; nothing only if the answer shows no remaining disk."""
        # 0 and () are reported facts; None is unknown, and never counts as free.
        if pod.volume_gb == 0 and pod.networks == ():
            return MeterKind.NONE
        if pod.networks or pod.volume_gb:
            return MeterKind.STORAGE_ONLY
        if storage is None:
            return MeterKind.UNKNOWN
        return MeterKind.STORAGE_ONLY


def _format_utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _sum_records(answer: HttpAnswer, instance: str, *, strict: bool = False) -> float | None:
    """Return the sum of a pod's records; None = unknown, or incomplete.

    Args:
        answer: The billing records.
        instance: The pod.
        strict: The answer is about other pods as well.
    """
    records = as_object(answer.data).get("records")
    # A sum without the next page would be too low.
    if not isinstance(records, list) or names_next_page(answer):
        return None
    amounts = [
        parse_number(record.get("totalAmount"))
        for record in records
        if isinstance(record, dict)
        and record.get("podId") in ((instance,) if strict else (instance, None))
    ]
    known = [amount for amount in amounts if amount is not None]
    # Empty billing records do not prove zero cost: billing lags by minutes.
    if known and len(known) == len(amounts):
        return sum(known)
    return None


class AccountBalance(FrozenStruct):
    """An account's money."""

    amount: float
    """The remaining amount; can be negative."""
    per_hour: float | None
    """Hourly cost of all machines of the account."""


async def read_balance(http: AccountHttp) -> AccountBalance:
    """Request the balance.

    Raises:
        ProviderError: among others, if the answer lacks it; GraphQL reports errors with status 200.
    """
    data = (await http.send_query("POST", BALANCE_PATH, {"query": BALANCE_QUERY})).data
    if isinstance(data, dict):
        found = data.get("data")
    else:
        found = None
    if isinstance(found, dict):
        myself = found.get("myself")
    else:
        myself = None
    if isinstance(myself, dict):
        left = parse_signed(myself.get("clientBalance"))
    else:
        left = None
    if left is None or not isinstance(myself, dict):
        raise BadAnswer(
            translate("RunPod does not report the account's balance"), console=http.console
        )
    return AccountBalance(amount=left, per_hour=parse_signed(myself.get("currentSpendPerHr")))
