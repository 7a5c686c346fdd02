"""A RunPod account over REST v2: lists, single pods, spend and network volumes, shared by all its boxes.

Calls and answers: https://docs.runpod.io/api-reference-v2/overview
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from rgt_tui.model.money import Lifecycle, Meter, MeterKind
from rgt_tui.providers.base import BadAnswer, ProviderError
from rgt_tui.providers.http import Account
from rgt_tui.providers.runpod_balance import AGE_S, RETRY_S, Balance, read_balance
from rgt_tui.providers.runpod_pod import Pod, network_per_hour, number, parse_pod

SPEND_AGE = 60.0
"""Seconds for which a spend figure is good; RunPod's billing itself runs every 5 minutes."""
SPEND_RETRY = 300.0
"""Seconds before a failed spend query is tried again: it must not eat the rate limit of what matters."""
VOLUMES_AGE = 600.0


class Spend(msgspec.Struct, frozen=True):
    """What the provider's books say of one pod."""

    amount: float | None
    """None = they did not answer."""
    at: float


class RunPodAccount:
    """Reads; remembers the last good sight of every pod, which is what tells *gone* from *never there*."""

    def __init__(self, http: Account, clock: Callable[[], float], *, tells_balance: bool = False) -> None:
        """Wrap an account.

        Args:
            http: Its connections and key.
            clock: Epoch seconds.
            tells_balance: The server is RunPod's own, which has an API for the balance.
        """
        self.http = http
        self._balance: Balance | None = None
        self._balance_due = 0.0 if tells_balance else float("inf")
        self._clock = clock
        self._seen: dict[str, Pod] = {}
        self._spend: dict[str, Spend] = {}
        self._spend_due = 0.0
        self._volumes: dict[str, float] = {}
        self._volumes_at: float | None = None

    def seen(self, instance: str) -> Pod | None:
        """Return the last good sight of a pod."""
        return self._seen.get(instance)

    async def pods(self) -> tuple[Pod, ...]:
        """Return all pods, those of clusters included: the default hides them, and hidden is not absent.

        Raises:
            ProviderError: among others when the answer is not provably the whole list.
        """
        answer = await self.http.get("/v2/pods?includeClusterPods=true")
        data = answer.data
        if not isinstance(data, dict) or not isinstance(data.get("pods"), list):
            raise BadAnswer(
                "RunPod's list of pods has no 'pods'; nothing follows from it", console=self.http.console
            )
        if answer.more or any(data.get(key) for key in ("next", "nextToken", "nextCursor", "hasMore")):
            raise BadAnswer(
                "RunPod sent only a part of its list; a pod that is not in it may well exist",
                console=self.http.console,
            )
        pods = tuple(parse_pod(raw, self.http.console) for raw in data["pods"])
        self._seen.update((pod.id, pod) for pod in pods)
        return pods

    async def pod(self, instance: str) -> Pod:
        """Return one pod.

        Raises:
            ProviderError: `NotFound` for a 404, which alone proves nothing.
        """
        pod = parse_pod((await self.http.get(f"/v2/pods/{instance}")).data, self.http.console)
        if pod.id != instance:
            raise BadAnswer(
                "RunPod answered with another pod than the one asked for", console=self.http.console
            )
        self._seen[instance] = pod
        return pod

    async def spent(self, pod: Pod) -> float | None:
        """Return what the pod has cost since it was created, by RunPod's books; None: they do not answer."""
        now = self._clock()
        known = self._spend.get(pod.id)
        if known and now - known.at < (SPEND_AGE if known.amount is not None else SPEND_RETRY):
            return known.amount
        amount = None
        query = f"/v2/billing/pods?podId={pod.id}&bucketSize=day"
        if pod.created is not None:
            query += f"&startTime={_utc(pod.created)}"
        with contextlib.suppress(ProviderError):  # An estimate takes its place, and says so.
            amount = _total((await self.http.get(query)).data, pod.id)
        if amount is None and known is not None:
            amount = known.amount
        self._spend[pod.id] = Spend(amount=amount, at=now)
        return amount

    async def learn_spend(self, pods: tuple[Pod, ...]) -> None:
        """Learn what all pods have cost with one query a minute, so that a large fleet stays within its limit."""
        now = self._clock()
        created = [pod.created for pod in pods if pod.created is not None]
        if not created or now < self._spend_due:
            return
        self._spend_due = now + SPEND_RETRY
        query = f"/v2/billing/pods?bucketSize=month&startTime={_utc(min(created))}"
        with contextlib.suppress(ProviderError):
            data = (await self.http.get(query)).data
            self._spend_due = now + SPEND_AGE
            for pod in pods:
                amount = _total(data, pod.id, strict=True)
                if amount is not None:
                    self._spend[pod.id] = Spend(amount=amount, at=now)

    async def learn_balance(self) -> None:
        """Learn what the account has left, at most every five minutes; a failure leaves it unknown."""
        now = self._clock()
        if now < self._balance_due:
            return
        self._balance, self._balance_due = None, now + RETRY_S
        with contextlib.suppress(ProviderError):
            self._balance = await read_balance(self.http)
            self._balance_due = now + AGE_S

    def spent_known(self, pod: Pod) -> float | None:
        """Return the last spend figure without asking."""
        known = self._spend.get(pod.id)
        return known.amount if known else None

    async def learn_volumes(self) -> None:
        """Learn the network volumes' prices, at most every ten minutes; a failure leaves them unknown."""
        now = self._clock()
        if self._volumes_at is not None and now - self._volumes_at < VOLUMES_AGE:
            return
        self._volumes_at = now
        try:
            data = (await self.http.get("/v2/network-volumes")).data
        except ProviderError:
            return
        items = data.get("networkVolumes") if isinstance(data, dict) else None
        for item in items if isinstance(items, list) else []:
            size = number(item.get("size")) if isinstance(item, dict) else None
            if size is not None and isinstance(item.get("id"), str):
                self._volumes[item["id"]] = network_per_hour(size, str(item.get("type")))

    def volume_price(self, volume: str) -> float | None:
        """Return what a network volume costs an hour, if that is known."""
        return self._volumes.get(volume)

    def storage(self, pod: Pod, *, running: bool) -> float | None:
        """Return the pod's storage $ per hour with its network volumes; None where a part is unknown.

        A volume that several pods mount counts on each of them: too much rather than too little.
        """
        own = pod.storage_per_hour(running=running)
        rates = [own, *(self.volume_price(mount.volume) for mount in pod.networks or ())]
        return None if None in rates else sum(rate for rate in rates if rate is not None)

    def meter(self, pod: Pod, spent: float | None) -> Meter:
        """Return the meter of a pod as just read."""
        now = self._clock()
        life = pod.lifecycle
        on = life in (Lifecycle.STARTING, Lifecycle.RUNNING) or (life is Lifecycle.ERROR and bool(pod.cost))
        compute = pod.cost
        if on:
            # A price of 0 is documented for stopped pods alone; on a running one it is not believed.
            compute = pod.cost or None
            kind = MeterKind.COMPUTE_AND_STORAGE
            storage = self.storage(pod, running=True)
            per_hour = None if compute is None else compute + (storage or 0.0)
        elif life is Lifecycle.STOPPED:
            # ``cost`` is 0.0 here, and the volume disk bills at twice its running rate all the same.
            compute, storage = 0.0, self.storage(pod, running=False)
            kind, per_hour = self._resting(pod, storage), storage
        elif life is Lifecycle.GONE:
            return self.gone(pod, spent)
        else:
            kind, storage, per_hour, compute = MeterKind.UNKNOWN, None, None, pod.cost or None
        source, since = f"RunPod REST v2 at {self.http.host}", pod.created
        booked = self._spend.get(pod.id)
        if spent is not None and booked is not None and on and per_hour is not None:
            # The books are read once a minute; between two readings the meter runs on.
            spent += max(0.0, now - booked.at) / 3600.0 * per_hour
        if spent is None and on and pod.started is not None and per_hour is not None:
            spent = max(0.0, now - pod.started) / 3600.0 * per_hour
            source, since = f"{source}; spent is an estimate: cost × uptime", pod.started
        return Meter(
            kind=kind,
            lifecycle=life,
            per_hour=per_hour,
            compute_per_hour=compute,
            storage_per_hour=storage,
            spent=spent,
            spent_since=since if spent is not None else None,
            at=now,
            source=source,
            native_status=pod.status + (" (locked)" if pod.locked else ""),
            actions=pod.actions,
            balance=self._balance.amount if self._balance is not None else None,
            burn_per_hour=self._balance.per_hour if self._balance is not None else None,
            ssh_host=pod.host if on else None,
            ssh_port=pod.port if on else None,
        )

    def gone(self, pod: Pod, spent: float | None) -> Meter:
        """Return the meter of a pod that was there and is no more. A network volume outlives it and bills."""
        rates = [self.volume_price(mount.volume) for mount in pod.networks or ()]
        storage = None if None in rates else sum(rate for rate in rates if rate is not None)
        source = f"RunPod REST v2 at {self.http.host}"
        if rates:
            source += "; its network volume bills until it is deleted"
        return Meter(
            kind=MeterKind.STORAGE_ONLY if rates else MeterKind.NONE,
            lifecycle=Lifecycle.GONE,
            per_hour=storage,
            compute_per_hour=0.0,
            storage_per_hour=storage,
            spent=spent,
            spent_since=pod.created if spent is not None else None,
            at=self._clock(),
            source=source,
            native_status=pod.status if pod.lifecycle is Lifecycle.GONE else "404 and not in the list",
        )

    @staticmethod
    def _resting(pod: Pod, storage: float | None) -> MeterKind:
        """Return what a stopped pod bills: nothing only if the answer shows that no disk of it stays."""
        if pod.volume_gb == 0 and pod.networks == ():
            return MeterKind.NONE
        if pod.networks or pod.volume_gb:
            return MeterKind.STORAGE_ONLY
        return MeterKind.UNKNOWN if storage is None else MeterKind.STORAGE_ONLY


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _total(data: object, instance: str, *, strict: bool = False) -> float | None:
    """Add up a pod's records; `strict` where the answer is about other pods as well."""
    records = data.get("records") if isinstance(data, dict) else None
    if not isinstance(records, list):
        return None
    amounts = [
        number(record.get("totalAmount"))
        for record in records
        if isinstance(record, dict) and record.get("podId") in ((instance,) if strict else (instance, None))
    ]
    known = [amount for amount in amounts if amount is not None]
    # A book without a single entry is not a proof of zero cost: billing lags by minutes.
    return sum(known) if known and len(known) == len(amounts) else None
