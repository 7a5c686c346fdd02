"""SkyPilot's API server (https://docs.skypilot.co), tested on 0.14.1, API version 62 (2026-11).

Every call is queued by the server and returns an id; ``/api/get`` with it sends nothing until the
request has ended. A failed request is answered with HTTP 500, with the type and message of the
error inside.

A stop or a down counts as done when the status, refreshed from the cloud, says so. If the cloud
cannot be reached, the server returns the last known status as if it were fresh: only
``status_updated_at`` shows the difference. ``purge`` is never sent (it forgets a cluster that may
still bill), and the pickled ``handle`` is neither requested nor loaded.
"""

from __future__ import annotations

import contextlib
import getpass
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import BillingVerb, Lifecycle, MeterKind, ProviderRef, clean_text
from rgt_tui.providers.answers import (
    AnswerProof,
    as_array,
    as_object,
    moment_of,
    parse_count,
    parse_number,
    parse_port,
    parse_text,
)
from rgt_tui.providers.control_plane import (
    AccountContext,
    BadAnswer,
    NotFound,
    ProviderError,
    RequestPause,
    Unreachable,
    make_printable,
)
from rgt_tui.providers.http import AccountHttp, BodyError, HttpAnswer, open_http
from rgt_tui.providers.rented import START, MachineCall, RentedAccount, RentedMachine, state_of

VENDOR = "http://127.0.0.1:46580"
"""Address of the server that ``sky`` starts automatically."""
KEY_ENV = "SKYPILOT_SERVICE_ACCOUNT_TOKEN"
USER_HASH = ".sky/user_hash"
SSH_DIR = ".sky/generated/ssh"
USER_ID = re.compile(r"[0-9a-f]{8}")
STATES = {
    "INIT": (Lifecycle.STARTING, MeterKind.UNKNOWN),
    "PENDING": (Lifecycle.STARTING, MeterKind.UNKNOWN),
    "UP": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "AUTOSTOPPING": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "STOPPED": (Lifecycle.STOPPED, MeterKind.STORAGE_ONLY),
}
"""``status`` → state, and what is charged. A cluster that is down is no longer in the list."""
DISKS = (("the disks of the stopped cluster", None),)
PRICE = (
    "from SkyPilot's cost report, at catalogue prices; the cloud may charge more, disks included"
)
REFUSALS: dict[int | str, AnswerProof] = {
    401: AnswerProof.NOTHING,
    403: AnswerProof.NOTHING,
    422: AnswerProof.NOTHING,
    429: AnswerProof.NOTHING,
    "ClusterDoesNotExist": AnswerProof.ASK,
}
"""A refused request was not queued; the codes are the error types of ended requests.
https://docs.skypilot.co (API version 62, verified on server 0.14.1, 2026-11)
"""
ANSWERS = {
    BillingVerb.PARK: {**REFUSALS, "NotSupportedError": AnswerProof.NOTHING},
    BillingVerb.DESTROY: REFUSALS,
}
"""A stop that the cloud does not support fails before the cloud is contacted (sky/core.py of
0.14.1).
"""
MEANS = {"NotSupportedError": 409, "ClusterDoesNotExist": 409}
"""Type of an error → the equivalent HTTP status; the server answers 500 to all."""


def open_account(ref: ProviderRef, context: AccountContext) -> SkyPilotAccount:
    """Return the server that a cluster belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref,
        context,
        vendor=VENDOR,
        console=ref.base_url or VENDOR,
        key_env=KEY_ENV,
        keyless=True,
        wrong=find_body_error,
    )
    return SkyPilotAccount(ref, http, context.clock, read_identity(context), context.home)


def find_body_error(data: object) -> BodyError | None:
    """Return the error of a body: ``{"detail": TEXT}``, or the failed request as ``detail``."""
    if not isinstance(data, dict) or "detail" not in data:
        return None
    return failure_of(data["detail"]) or BodyError(
        "", parse_text(data["detail"], 200) or "an error"
    )


def failure_of(request: object) -> BodyError | None:
    """Return the error of an ended request; None = it has none.

    Its field ``error`` is JSON in a string, even without an error: ``"null"``.
    """
    error = as_object(request).get("error")
    if isinstance(error, str):
        with contextlib.suppress(msgspec.DecodeError):
            error = msgspec.json.decode(error)
    if not error:
        return None
    code = parse_text(as_object(error).get("type"), 80) or ""
    words = as_object(error).get("message", error)
    text = code
    if isinstance(words, str):
        text = make_printable(clean_text(words), 300)
    return BodyError(code, text, MEANS.get(code))


def read_identity(context: AccountContext) -> Mapping[str, str]:
    """Return the user's identity, which a server without logins reads from each request."""
    found = ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        found = (context.home / USER_HASH).read_text(encoding="utf-8")[:64].strip()
    user = context.env.get("SKYPILOT_USER_ID", "") or found
    return {
        "SKYPILOT_USER_ID": user if USER_ID.fullmatch(user) else "",
        "SKYPILOT_USER": context.env.get("USER", "") or _find_login(),
    }


def _find_login() -> str:
    with contextlib.suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return "unknown"


class SkyPilotAccount(RentedAccount):
    """One person's clusters on one server."""

    platform: ClassVar[str] = "SkyPilot"
    api: ClassVar[str] = "API server"
    labels: ClassVar[Mapping[BillingVerb, str]] = {
        BillingVerb.PARK: "sky stop",
        BillingVerb.DESTROY: "sky down",
    }
    words: ClassVar[Mapping[BillingVerb, str]] = {
        BillingVerb.PARK: "stop",
        BillingVerb.DESTROY: "down",
    }
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
        self._rates_pause = RequestPause()

    def _build_body(self, **fields: object) -> dict[str, object]:
        return {**fields, "env_vars": self._user}

    async def _wait_for_end(
        self, answer: HttpAnswer, path: str, silent_s: float
    ) -> dict[str, object]:
        """Return a queued request after it has succeeded.

        Raises:
            ProviderError: it failed, with the type of its error as the code, or its result could
                not be read.
        """
        queued = answer.headers.get("x-skypilot-request-id", "")
        if not re.fullmatch(r"[\w-]{1,80}", queued):
            raise self.undocumented_error(translate("no request id for {path}", path=path))
        try:
            ended = as_object(
                (await self.http.get(f"/api/get?request_id={queued}", silent_s=silent_s)).data
            )
        except NotFound:  # The request is unknown, which says nothing about the cluster.
            raise Unreachable(
                translate("SkyPilot lost its request {path}; the state is unknown", path=path),
                console=self.http.console,
            ) from None
        failed = failure_of(ended)
        if ended.get("status") != "SUCCEEDED" or failed:
            words = (
                (failed.text if failed else "")
                or parse_text(ended.get("status"), 40)
                or translate("no status")
            )
            raise Unreachable(
                translate("SkyPilot's request {path} ended with {words}", path=path, words=words),
                console=self.http.console,
            )
        return ended

    async def _fetch_result(self, path: str, body: object) -> tuple[dict[str, object], object]:
        """Send a read-only request; return the ended request, and its return value.

        Raises:
            ProviderError: it failed, or its result could not be read.
        """
        # Seconds without a byte during a status request: the server starts its workers and queries
        # the cloud.
        result_s = 120.0
        ended = await self._wait_for_end(
            await self.http.send_query("POST", path, body), path, result_s
        )
        value = ended.get("return_value")
        try:
            return ended, msgspec.json.decode(value) if isinstance(value, str) else value
        except (msgspec.DecodeError, RecursionError):
            raise self.undocumented_error(
                translate("something that is not JSON for {path}", path=path)
            ) from None

    async def confirm_answer(self, what: str, answer: HttpAnswer) -> str:
        """Wait for the result of a stop, down or start, which the server queues.

        Raises:
            ProviderError: the request has failed; after any other error it is still queued.
        """
        said = self.judge_answer(what, answer.data)
        try:
            # The same for a stop, down or start. Refusals are immediate; longer requests are
            # followed by the status.
            action_s = 60.0
            await self._wait_for_end(answer, what, action_s)
        except ProviderError as error:
            if error.code:
                raise
            return translate("{said}; its result is unknown ({error})", said=said, error=error)
        return translate("the request has succeeded")

    async def _fetch_clusters(
        self, names: list[str] | None, *, force: bool
    ) -> tuple[RentedMachine, ...]:
        # All fields are sent: the server's defaults include other people's clusters, credentials
        # and the pickle. The summary lacks `status_updated_at`.
        refresh = "AUTO"
        if force:
            refresh = "FORCE"
        body = self._build_body(
            cluster_names=names,
            refresh=refresh,
            all_users=False,
            include_credentials=False,
            summary_response=not force,
            include_handle=False,
        )
        request, found = await self._fetch_result("/status", body)
        if not isinstance(found, list):
            raise self.undocumented_error(translate("something that is not a list of clusters"))
        begun = parse_number(request.get("created_at")) or math.inf
        return tuple(self.parse_machine(raw, begun if force else None) for raw in found)

    async def fetch_machine(self, instance: str) -> RentedMachine:
        """Read one cluster, its status refreshed from the cloud."""
        found = next(
            (
                one
                for one in await self._fetch_clusters([instance], force=True)
                if one.id == instance
            ),
            None,
        )
        if found is None:
            raise NotFound(
                translate(
                    "SkyPilot knows no cluster {instance}", instance=make_printable(instance, 120)
                ),
                console=self.http.console,
            )
        return found

    async def fetch_all(self) -> tuple[RentedMachine, ...]:
        """Read the user's own clusters; the list has no pages."""
        await self._learn_rates()
        return await self._fetch_clusters(None, force=False)

    async def _learn_rates(self) -> None:
        """Learn the hourly cost of each cluster from the cost report, rarely."""
        if self._rates_pause.seconds_left(self.clock()):
            return
        # Seconds for which the cost report is valid; it counts usage and lags behind.
        report_age = 300.0
        self._rates_pause.begin(self.clock(), report_age)
        with contextlib.suppress(ProviderError):
            _, rows = await self._fetch_result("/cost_report", self._build_body(days=30))
            for row in map(as_object, as_array(rows)):
                if not row.get("status"):
                    continue  # A terminated cluster; its name may be in use again.
                cost, seconds = (
                    parse_number(row.get("total_cost")),
                    parse_number(row.get("duration")),
                )
                name = row.get("name")
                if (
                    isinstance(name, str)
                    and cost
                    and seconds
                    and (rate := parse_number(cost / seconds * 3600.0))
                ):
                    self._rates[name] = rate

    def parse_machine(self, raw: object, refreshed_after: float | None = None) -> RentedMachine:
        """Parse one cluster.

        Args:
            raw: As the server lists it.
            refreshed_after: Unix time by the server's clock. An older status was not confirmed by
                the cloud: *stopped* is not believed then. None = any age is accepted.

        Raises:
            BadAnswer: it has no name; any other invalid field becomes None.
        """
        box = as_object(raw)
        name = self.require_id(box.get("name"), translate("a cluster without a name"))
        status = make_printable(box.get("status") or "not said", 40)
        lifecycle, bills = state_of(STATES, box.get("status"))
        doubts = []
        if refreshed_after is not None and (parse_number(box.get("status_updated_at")) or 0) < int(
            refreshed_after
        ):
            status = f"{status}, not confirmed by the cloud"
            doubts.append("SkyPilot could not reach the cloud: this is its last known status")
            if lifecycle is not Lifecycle.RUNNING:
                lifecycle, bills = Lifecycle.UNKNOWN, MeterKind.UNKNOWN
        gpu, count = parse_accelerators(box.get("accelerators"))
        nodes = parse_count(box.get("nodes")) or 1
        rate = self._rates.get(name)
        if rate is not None:
            doubts.append(PRICE)
        host, at, user = find_endpoint(self._home, name)
        storage: tuple[tuple[str, None], ...] = ()
        if lifecycle is Lifecycle.STOPPED:
            storage = DISKS
        gpu_count = None
        if count is not None:
            gpu_count = count * nodes
        # It changes with every launch, so it is not the creation time.
        started = None
        if lifecycle is Lifecycle.RUNNING:
            started = moment_of(box.get("launched_at"))
        return RentedMachine(
            id=name,
            name=name,
            status=status,
            lifecycle=lifecycle,
            bills=bills,
            compute=rate,
            storage=storage,
            at_rest=DISKS,
            actions={Lifecycle.RUNNING: ("stop", "down"), Lifecycle.STOPPED: ("start", "down")}.get(
                lifecycle, ("down",)
            ),
            host=host,
            port=at,
            user=user,
            gpu=gpu,
            gpu_count=gpu_count,
            region=" ".join(
                filter(None, (parse_text(box.get("cloud"), 40), parse_text(box.get("region"), 60)))
            )
            or None,
            started=started,
            doubt="; ".join(doubts) or None,
        )

    def build_call(self, what: str, instance: str) -> MachineCall | None:
        """Return the call for a verb."""
        fields: dict[str, object] = {"cluster_name": instance}
        if what == BillingVerb.PARK:
            return MachineCall("POST", "/stop", self._build_body(**fields, purge=False))
        if what == BillingVerb.DESTROY:
            return MachineCall(
                "POST",
                "/down",
                self._build_body(**fields, purge=False, graceful=False, graceful_timeout=None),
            )
        if what == START:
            fields |= {
                "idle_minutes_to_autostop": None,
                "retry_until_up": False,
                "down": False,
                "force": False,
            }
            return MachineCall("POST", "/start", self._build_body(**fields))
        return None

    def judge_answer(self, what: str, data: object) -> str:
        """Require the empty answer, which means that the request is queued."""
        if data is not None:
            raise BadAnswer(
                translate("SkyPilot did not answer as documented; read the state"),
                console=self.http.console,
                status=200,
            )
        return "queued"


def find_endpoint(home: Path, name: str) -> tuple[str | None, int | None, str | None]:
    """Return host, port and user of a cluster's first node from SkyPilot's local ssh files.

    The server reports none of them; each cluster has a file in ``~/.sky/generated/ssh`` (seen
    2026-11).
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
    host = parse_text(found.get("hostname"), 200)
    return (
        host,
        (parse_port(found.get("port") or 22) if host else None),
        parse_text(found.get("user"), 60),
    )


def parse_accelerators(value: object) -> tuple[str | None, int | None]:
    """Return type and number of ``{'A10': 1}``, given as text; None for anything else."""
    if isinstance(value, str):
        found = re.fullmatch(r"\{'([\w.+ -]{1,40})': (\d{1,3})(?:\.0)?\}", value)
    else:
        found = None
    if found:
        return (found[1], int(found[2]))
    return (None, None)
