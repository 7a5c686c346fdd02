"""SkyPilot through its API server (0.14.1, API version 62, verified 2026-08; https://docs.skypilot.co).

Every call is a request that the server queues: its answer is an id, and what came of it is asked for by that id. What
is believed of a stop or a down is the status, refreshed by force. ``purge`` is never sent (it forgets a cluster that
may still bill), and the pickled ``handle`` is neither asked for nor loaded.
"""

from __future__ import annotations

import contextlib
import getpass
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from rgt_tui.model.box import ProviderRef
from rgt_tui.model.evidence import Verb
from rgt_tui.model.money import Lifecycle, MeterKind
from rgt_tui.providers.answers import Proof, array, moment_of, number, port, table, text, whole
from rgt_tui.providers.control_plane import (
    BadAnswer,
    Context,
    NotFound,
    Pause,
    ProviderError,
    Unreachable,
    printable,
)
from rgt_tui.providers.http import AccountHttp, open_http
from rgt_tui.providers.rented import START, Call, Machine, RentedAccount, state_of

VENDOR = "http://127.0.0.1:46580"
"""Where the server runs that ``sky`` starts by itself."""
KEY_ENV = "SKYPILOT_SERVICE_ACCOUNT_TOKEN"
USER_HASH = ".sky/user_hash"
SSH_DIR = ".sky/generated/ssh"
USER_ID = re.compile(r"[0-9a-f]{8}")
REPORT_AGE = 300.0
"""Seconds for which the cost report is good; it counts from usage and lags behind."""
STATES = {
    "INIT": (Lifecycle.STARTING, MeterKind.UNKNOWN),
    "PENDING": (Lifecycle.STARTING, MeterKind.UNKNOWN),
    "UP": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "AUTOSTOPPING": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "STOPPED": (Lifecycle.STOPPED, MeterKind.STORAGE_ONLY),
}
"""``status`` → what it is and what is charged. A cluster that is down is in the list no more."""
DISKS = (("the disks of the stopped cluster", None),)
PRICE = (
    "by SkyPilot's cost report, at the catalogue's prices; what the cloud bills, disks included, may be more"
)
REFUSALS: dict[int | str, Proof] = {401: Proof.NOTHING, 403: Proof.NOTHING, 429: Proof.NOTHING}
"""A request that was refused was not queued: https://docs.skypilot.co (API version 62, verified 2026-08)."""
ANSWERS = dict.fromkeys(Verb, REFUSALS)


def open_account(ref: ProviderRef, context: Context) -> SkyPilotAccount:
    """Return the server that a cluster belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref, context, vendor=VENDOR, console=ref.base_url or VENDOR, key_env=KEY_ENV, keyless=True
    )
    return SkyPilotAccount(ref, http, context.clock, identity(context), context.home)


def identity(context: Context) -> Mapping[str, str]:
    """Return who is asking: a server without logins reads both from each request."""
    found = ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        found = (context.home / USER_HASH).read_text(encoding="utf-8")[:64].strip()
    user = context.env.get("SKYPILOT_USER_ID", "") or found
    return {
        "SKYPILOT_USER_ID": user if USER_ID.fullmatch(user) else "",
        "SKYPILOT_USER": context.env.get("USER", "") or _login(),
    }


def _login() -> str:
    with contextlib.suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return "unknown"


class SkyPilotAccount(RentedAccount):
    """One person's clusters on one server."""

    platform: ClassVar[str] = "SkyPilot"
    api: ClassVar[str] = "API server"
    labels: ClassVar[Mapping[Verb, str]] = {Verb.PARK: "sky stop", Verb.DESTROY: "sky down"}
    words: ClassVar[Mapping[Verb, str]] = {Verb.PARK: "stop", Verb.DESTROY: "down"}
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[A-Za-z](?:[\w.-]{0,118}[A-Za-z0-9])?")

    def __init__(
        self,
        ref: ProviderRef,
        http: AccountHttp,
        clock: Callable[[], float],
        user: Mapping[str, str],
        home: Path,
    ) -> None:
        super().__init__(ref, http, clock)
        self._home = home
        self._user = dict(user)
        self._rates: dict[str, float] = {}
        self._rates_pause = Pause()

    def _body(self, **fields: object) -> dict[str, object]:
        return {**fields, "env_vars": self._user}

    async def _result(self, path: str, body: object) -> object:
        """Queue a request that changes nothing, and wait for what comes of it.

        Raises:
            ProviderError: it failed, or nobody knows.
        """
        answer = await self.http.ask("POST", path, body)
        queued = answer.headers.get("x-skypilot-request-id", "")
        if not re.fullmatch(r"[\w-]{1,80}", queued):
            raise self.odd(f"no request id for {path}")
        told = table((await self.http.get(f"/api/get?request_id={queued}")).data)
        if told.get("status") != "SUCCEEDED" or told.get("error"):
            said = text(told.get("status"), 40) or "no status"
            raise Unreachable(f"SkyPilot's request {path} ended with {said}", console=self.http.console)
        value = told.get("return_value")
        try:
            return msgspec.json.decode(value) if isinstance(value, str) else value
        except (msgspec.DecodeError, RecursionError):
            raise self.odd(f"something that is not JSON for {path}") from None

    async def _status(self, names: list[str] | None, refresh: str) -> tuple[Machine, ...]:
        # Each of these is said: the server's own defaults show other people's clusters, credentials and the pickle.
        body = self._body(
            cluster_names=names,
            refresh=refresh,
            all_users=False,
            include_credentials=False,
            summary_response=True,
            include_handle=False,
        )
        found = await self._result("/status", body)
        if not isinstance(found, list):
            raise self.odd("something that is not a list of clusters")
        return tuple(map(self.parse, found))

    async def fetch(self, instance: str) -> Machine:
        """Ask for one cluster, its status refreshed at the cloud: the server's own memory lags behind."""
        found = next((one for one in await self._status([instance], "FORCE") if one.id == instance), None)
        if found is None:
            raise NotFound(f"SkyPilot knows no cluster {printable(instance, 120)}", console=self.http.console)
        return found

    async def fetch_all(self) -> tuple[Machine, ...]:
        """Ask for one's own clusters; the list has no pages."""
        await self._learn_rates()
        return await self._status(None, "AUTO")

    async def _learn_rates(self) -> None:
        """Learn what an hour of each cluster costs by the cost report, seldom."""
        if self._rates_pause.left(self.clock()):
            return
        self._rates_pause.begin(self.clock(), REPORT_AGE)
        with contextlib.suppress(ProviderError):
            rows = array(await self._result("/cost_report", self._body(days=30)))
            for row in map(table, rows):
                cost, seconds = number(row.get("total_cost")), number(row.get("duration"))
                name = row.get("name")
                if isinstance(name, str) and cost and seconds and (rate := number(cost / seconds * 3600.0)):
                    self._rates[name] = rate

    def parse(self, raw: object) -> Machine:
        """Read one cluster.

        Raises:
            BadAnswer: it has no name; anything else that is odd becomes None.
        """
        box = table(raw)
        name = self.known_id(box.get("name"), "a cluster without a name")
        status = box.get("status")
        lifecycle, bills = state_of(STATES, status)
        gpu, count = accelerators(box.get("accelerators"))
        nodes = whole(box.get("nodes")) or 1
        rate = self._rates.get(name)
        host, at, user = endpoint(self._home, name)
        return Machine(
            id=name,
            name=name,
            status=printable(status or "not said", 40),
            lifecycle=lifecycle,
            bills=bills,
            compute=rate,
            storage=DISKS if lifecycle is Lifecycle.STOPPED else (),
            at_rest=DISKS,
            actions={Lifecycle.RUNNING: ("stop", "down"), Lifecycle.STOPPED: ("start", "down")}.get(
                lifecycle, ("down",)
            ),
            host=host,
            port=at,
            user=user,
            gpu=gpu,
            gpu_count=None if count is None else count * nodes,
            region=" ".join(filter(None, (text(box.get("cloud"), 40), text(box.get("region"), 60)))) or None,
            created=moment_of(box.get("launched_at")),
            doubt=None if rate is None else PRICE,
        )

    def call(self, what: str, instance: str) -> Call | None:
        """Return the call for a verb."""
        fields: dict[str, object] = {"cluster_name": instance}
        if what == Verb.PARK:
            return Call("POST", "/stop", self._body(**fields, purge=False))
        if what == Verb.DESTROY:
            return Call(
                "POST", "/down", self._body(**fields, purge=False, graceful=False, graceful_timeout=None)
            )
        if what == START:
            fields |= {
                "idle_minutes_to_autostop": None,
                "retry_until_up": False,
                "down": False,
                "force": False,
            }
            return Call("POST", "/start", self._body(**fields))
        return None

    def judge(self, what: str, data: object) -> str:
        """Say what the empty answer is worth: the request is queued."""
        if data is not None:
            raise BadAnswer(
                "SkyPilot did not answer as documented; read the state", console=self.http.console, status=200
            )
        return "queued"


def endpoint(home: Path, name: str) -> tuple[str | None, int | None, str | None]:
    """Return host, port and user of a cluster's first node, as SkyPilot's own ssh configuration on this machine says.

    The server tells none of them; each cluster has a file below ``~/.sky/generated/ssh`` (seen 2026-11).
    """
    try:
        text_of_it = (home / SSH_DIR / name).read_text(encoding="utf-8")[:65536]
    except (OSError, UnicodeDecodeError):
        return None, None, None
    found: dict[str, str] = {}
    inside = False
    for line in text_of_it.splitlines():
        word, _, value = line.strip().partition(" ")
        if word.lower() == "host":
            inside = name in value.split()
        elif inside:
            found.setdefault(word.lower(), value.strip())
    host = text(found.get("hostname"), 200)
    return host, (port(found.get("port") or 22) if host else None), text(found.get("user"), 60)


def accelerators(value: object) -> tuple[str | None, int | None]:
    """Return type and number of ``{'A10': 1}``, which comes as text; None for anything else."""
    found = (
        re.fullmatch(r"\{'([\w.+ -]{1,40})': (\d{1,3})(?:\.0)?\}", value) if isinstance(value, str) else None
    )
    return (found[1], int(found[2])) if found else (None, None)
