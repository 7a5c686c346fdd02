"""Lambda Cloud's API (https://docs.lambda.ai/api/cloud, OpenAPI 1.10.0, verified 2026-08).

There is no stop: an instance is charged until it is terminated, even after a shutdown from inside.
The API reports no balance, no bill, and no launch time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from rgt_tui.language import translate
from rgt_tui.model import (
    BillingVerb,
    Leftover,
    Lifecycle,
    MeterKind,
    Offer,
    ProviderRef,
    RentalRequest,
)
from rgt_tui.model.gpu_names import same_gpu
from rgt_tui.profiles import load_profile, storage_per_hour
from rgt_tui.providers.answers import (
    AnswerProof,
    Parts,
    as_array,
    as_object,
    parse_count,
    parse_number,
    parse_text,
    read_single_page,
)
from rgt_tui.providers.control_plane import (
    AccountContext,
    BadAnswer,
    ProviderError,
    RequestPause,
    make_printable,
)
from rgt_tui.providers.http import AccountHttp, BodyError, open_http
from rgt_tui.providers.rented import (
    EVERY,
    START,
    MachineCall,
    RentedAccount,
    RentedMachine,
    state_of,
)
from rgt_tui.providers.rented_market import CREATE, RentedMarket, check_wish, in_order, unknown_gpu

VENDOR = "https://cloud.lambda.ai"
CONSOLE = "https://cloud.lambda.ai/instances"
KEY_ENV = "LAMBDA_API_KEY"
KEY_FILE = ".lambda_cloud/lambda_keys"
"""Lambda has no tool of its own; SkyPilot stores the key here: https://docs.skypilot.co (verified
2026-11).
"""
FILESYSTEM = "nfs-filesystem"
"""The tier in the profile."""
MEANS = {
    "global/invalid-api-key": 401,
    "global/account-inactive": 403,
    "global/object-does-not-exist": 404,
    "global/conflict": 409,
}
"""Error code → the equivalent HTTP status."""
STATES = {
    "booting": (Lifecycle.STARTING, MeterKind.COMPUTE_AND_STORAGE),
    "active": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "unhealthy": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "terminating": (Lifecycle.RUNNING, MeterKind.UNKNOWN),
    "terminated": (Lifecycle.GONE, MeterKind.NONE),
    "preempted": (Lifecycle.GONE, MeterKind.NONE),
}
"""``status`` → state, and what is charged."""
NOT_YET = "charged from the moment at which Lambda's health check passes; counted from now on"
"""https://docs.lambda.ai/public-cloud/billing/ (verified 2026-08)."""
RESERVED = "the instance is reserved: the API does not report its contract price"
NO_STOP = (
    "Lambda has no stop: an instance is charged until it is terminated, also after a shutdown on it"
)
REFUSALS: dict[int | str, AnswerProof] = {
    "global/object-does-not-exist": AnswerProof.ASK,
    "global/conflict": AnswerProof.ASK,
    "global/invalid-api-key": AnswerProof.NOTHING,
    "global/account-inactive": AnswerProof.NOTHING,
    "global/invalid-parameters": AnswerProof.NOTHING,
    401: AnswerProof.NOTHING,
    403: AnswerProof.NOTHING,
    429: AnswerProof.NOTHING,
}
"""Errors as ``{error: {code, message, suggestion}}``: https://docs.lambda.ai/api/cloud (verified
2026-08).
"""
ANSWERS = dict.fromkeys(BillingVerb, REFUSALS)
NO_SPOT = "Lambda has no spot machines"
NOTES = (
    "there is no stop: it is charged until it is terminated, also after a shutdown on it",
    "to keep files, attach a file system at launch, in the console",
    "some hosts start without a working CUDA: check the box before you use it",
)


def open_account(ref: ProviderRef, context: AccountContext) -> LambdaAccount:
    """Return the account that an instance belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref,
        context,
        vendor=VENDOR,
        console=CONSOLE,
        key_env=KEY_ENV,
        vendor_files=((KEY_FILE, key_in),),
        wrong=find_body_error,
    )
    return LambdaAccount(ref, http, context.clock)


def key_in(path: Path) -> str:
    """Return the key from the line ``api_key = …`` of SkyPilot's file; empty without one."""
    try:
        lines = path.read_text(encoding="utf-8")[:4096].splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    found = (line.partition("=") for line in lines)
    return next((value.strip() for name, _, value in found if name.strip() == "api_key"), "")


def find_body_error(data: object) -> BodyError | None:
    """Return the error of a body; only its code is meant for comparison."""
    error = as_object(data).get("error")
    if not error:
        return None
    code = parse_text(as_object(error).get("code"), 80) or ""
    return BodyError(
        code,
        parse_text(as_object(error).get("message"), 200) or code or "an error",
        MEANS.get(code),
    )


class LambdaAccount(RentedAccount):
    """One account at Lambda."""

    platform: ClassVar[str] = "Lambda"
    labels: ClassVar[Mapping[BillingVerb, str]] = {BillingVerb.DESTROY: "Terminate"}
    words: ClassVar[Mapping[BillingVerb, str]] = {BillingVerb.DESTROY: "terminate"}
    lacks: ClassVar[Mapping[str, str]] = {
        BillingVerb.PARK: NO_STOP,
        START: "Lambda has no start: a terminated instance no longer exists",
    }
    not_listed: ClassVar[tuple[str, ...]] = ("1-Click Clusters", "reserved capacity")
    gaps: ClassVar[Mapping[str, float]] = {EVERY: 1.0, CREATE: 12.0}

    def __init__(self, ref: ProviderRef, http: AccountHttp, clock: Callable[[], float]) -> None:
        super().__init__(ref, http, clock)
        self._market = LambdaMarket(self)
        self._filesystems: dict[str, float | None] = {}
        self._filesystems_pause = RequestPause()

    async def fetch_machine(self, instance: str) -> RentedMachine:
        """Request one instance."""
        await self.pace.wait_turn("get")
        return self.parse_machine(
            as_object((await self.http.get(f"/api/v1/instances/{instance}")).data).get("data")
        )

    async def fetch_all(self) -> tuple[RentedMachine, ...]:
        """Request all instances; the list has no pages."""
        await self.pace.wait_turn("list")
        answer = await self.http.get("/api/v1/instances")
        items = read_single_page(
            answer, as_object(answer.data).get("data"), "instances", self.undocumented_error
        )
        return tuple(map(self.parse_machine, items))

    def parse_machine(self, raw: object) -> RentedMachine:
        """Parse one instance.

        Raises:
            BadAnswer: it is not an object with an id; any other invalid field becomes None.
        """
        box = as_object(raw)
        identifier = self.require_id(box.get("id"), translate("an instance without an id"))
        status = box.get("status")
        lifecycle, bills = state_of(STATES, status)
        kind = as_object(box.get("instance_type"))
        cents = parse_number(kind.get("price_cents_per_hour"))
        disks = self._list_disks(box.get("file_system_names"))
        if box.get("is_reserved") is True:
            reserved = RESERVED
        else:
            reserved = None
        can = as_object(as_object(box.get("actions")).get("terminate")).get("available")
        # Of the whole instance, not per GPU.
        compute = None
        if cents is not None:
            compute = cents / 100.0
        storage: tuple[tuple[str, float | None], ...]
        if disks is None:
            storage = (("a file system, if one is attached", None),)
        else:
            storage = disks
        # Only an explicit no counts: an answer without `actions` must not take the button away.
        actions: tuple[str, ...] = ()
        if can is not False and lifecycle is not Lifecycle.GONE:
            actions = ("terminate",)
        port = None
        if parse_text(box.get("ip"), 200):
            port = 22
        doubt = reserved
        if lifecycle is Lifecycle.STARTING:
            doubt = NOT_YET
        return RentedMachine(
            id=identifier,
            name=parse_text(box.get("name")) or "",
            status=make_printable(status or "not said", 40),
            lifecycle=lifecycle,
            bills=bills,
            compute=compute,
            storage=storage,
            outlives=disks,
            mounts=tuple(
                path
                for mount in as_array(box.get("file_system_mounts"))
                if (path := parse_text(as_object(mount).get("mount_point"), 200))
            ),
            actions=actions,
            host=parse_text(box.get("ip"), 200),
            port=port,
            user="ubuntu",
            gpu=parse_text(kind.get("gpu_description"), 60),
            gpu_count=parse_count(as_object(kind.get("specs")).get("gpus")),
            region=parse_text(as_object(box.get("region")).get("name"), 60),
            spot=False,
            doubt=doubt,
        )

    def _list_disks(self, names: object) -> Parts | None:
        """Return the attached file systems; None = not reported."""
        if not isinstance(names, list):
            return None
        said = [f"file system {make_printable(one, 80)}" for one in names]
        return tuple((one, self._filesystems.get(one)) for one in said)

    def list_tiers(self, machine: RentedMachine) -> dict[str, str]:
        """Return the mounts of local disk and file systems; a launch may choose other paths."""
        names = (name.removeprefix("file system ") for name, _ in machine.outlives or ())
        # The default mount point, if the answer does not name one.
        paths = machine.mounts or tuple(f"/lambda/nfs/{name}" for name in names)
        return {"/": "local-nvme", **dict.fromkeys(paths, FILESYSTEM)}

    def build_call(self, what: str, instance: str) -> MachineCall | None:
        """Return the call for a verb: only destroy has one."""
        if what != BillingVerb.DESTROY:
            return None
        return MachineCall(
            "POST", "/api/v1/instance-operations/terminate", {"instance_ids": [instance]}
        )

    def judge_answer(self, what: str, data: object) -> str:
        """Require an instance in ``terminated_instances``."""
        ended = as_array(as_object(as_object(data).get("data")).get("terminated_instances"))
        # Status 200 with an empty list: the id was not among the account's instances.
        if not ended:
            raise BadAnswer(
                translate("Lambda did not confirm the request; read the state"),
                console=self.http.console,
                status=200,
            )
        return f"status {make_printable(as_object(ended[0]).get('status') or 'not said', 40)}"

    async def learn_parts(self, machines: tuple[RentedMachine, ...]) -> None:
        """Learn the prices of the file systems, rarely."""
        if not self._filesystems_pause.seconds_left(self.clock()) and any(
            one.outlives for one in machines
        ):
            # Seconds for which the sizes of the file systems are valid.
            filesystems_age = 600.0
            self._filesystems_pause.begin(self.clock(), filesystems_age)
            with contextlib.suppress(ProviderError):
                self._filesystems = {
                    f"file system {one.name}": one.per_hour for one in await self.list_leftovers()
                }
                self.update_prices(self._filesystems)

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """List the file systems, which are charged by content until they are deleted."""
        await self.pace.wait_turn("filesystems")
        answer = await self.http.get("/api/v1/file-systems")
        items = read_single_page(
            answer, as_object(answer.data).get("data"), "file systems", self.undocumented_error
        )
        return tuple(map(self._parse_leftover, items))

    def _parse_leftover(self, raw: object) -> Leftover:
        item = as_object(raw)
        identifier, name = parse_text(item.get("id"), 80), parse_text(item.get("name"), 80) or ""
        if identifier is None:
            raise self.undocumented_error(translate("a file system without an id"))
        used = parse_number(item.get("bytes_used"))
        # Charged by the bytes in use; there is no size that is reserved.
        size = None if used is None else used / 1e9
        if size is None:
            price = None
        else:
            price = storage_per_hour(load_profile("lambda"), FILESYSTEM, size, running=True)
        on = [one for one in self._seen.values() if one.lifecycle is not Lifecycle.GONE]
        per_hour = None
        if price is not None:
            per_hour = price.value or None
        return Leftover(
            what="volume",
            id=identifier,
            name=name,
            per_hour=per_hour,
            size_gb=size,
            region=parse_text(as_object(item.get("region")).get("name"), 60),
            used_by=tuple(
                one.id
                for one in on
                if any(part == f"file system {name}" for part, _ in one.outlives or ())
            ),
            how=f"DELETE {self.http.base_url}/api/v1/filesystems/{identifier}",
        )


# Finds and launches Lambda's instances: their types, and the regions that have capacity now.
#
# https://docs.lambda.ai/api/cloud (verified 2026-08). A listed region is no guarantee: in one
# report, a third of the launches were refused.


class LambdaMarket(RentedMarket):
    """Launches instances; see `Market`."""

    async def find_offers(self, wish: RentalRequest) -> tuple[Offer, ...]:
        """Return the types with that GPU in the regions that have one now; see `Market.offers`."""
        check_wish("Lambda", wish, currency="USD", spot=translate(NO_SPOT))
        await self.account.pace.wait_turn("offers")
        types = as_object((await self.account.http.get("/api/v1/instance-types")).data).get("data")
        if not isinstance(types, dict):
            raise BadAnswer(
                translate("Lambda's list of types has no 'data'"), console=self.account.http.console
            )
        entries = [as_object(entry) for entry in types.values()]
        names = {_read_gpu_model(as_object(entry.get("instance_type"))) for entry in entries} - {""}
        if not any(same_gpu(wish.gpu, name) for name in names):
            raise unknown_gpu("Lambda", wish, names, self.account.http.console)
        return in_order(
            (offer for entry in entries for offer in self._build_offers(entry, wish)), wish
        )

    def _build_offers(self, entry: Mapping[str, object], wish: RentalRequest) -> Iterator[Offer]:
        """Yield an offer of one type for each region that has it."""
        kind = as_object(entry.get("instance_type"))
        specs, name, gpu = (
            as_object(kind.get("specs")),
            parse_text(kind.get("name"), 80),
            _read_gpu_model(kind),
        )
        disk, cents = (
            parse_count(specs.get("storage_gib")),
            parse_number(kind.get("price_cents_per_hour")),
        )
        fits = same_gpu(wish.gpu, gpu) and parse_count(specs.get("gpus")) == wish.gpu_count
        # The local disk comes with the type, and cannot be chosen.
        if name is None or not fits or (disk is not None and disk < wish.disk_gb):
            return
        for region in map(as_object, as_array(entry.get("regions_with_capacity_available"))):
            place = parse_text(region.get("name"), 60)
            if place is None or wish.region not in (None, place):
                continue
            # Cents for the whole instance; 0 is not a price.
            compute_per_hour = None
            if cents:
                compute_per_hour = cents / 100.0
            yield Offer(
                kind=self.account.ref.kind,
                id=f"{name}/{place}",
                gpu=gpu,
                gpu_count=wish.gpu_count,
                compute_per_hour=compute_per_hour,
                # The local disk is included and traffic is free: https://lambda.ai (verified
                # 2026-06).
                storage_per_hour=0.0,
                in_per_gb=0.0,
                out_per_gb=0.0,
                disk_gb=disk,
                region=place,
                stock=translate("has capacity now"),
                notes=NOTES,
            )

    def build_creation_call(self, offer: Offer, wish: RentalRequest, token: str) -> MachineCall:
        """Return the launch call; `prepare_creation` adds the key's name."""
        name, _, place = offer.id.partition("/")
        if not name or not place:
            raise BadAnswer(
                translate("{id!r} is not an offer from Lambda", id=offer.id), sent=False
            )
        body: dict[str, object] = {
            "region_name": place,
            "instance_type_name": name,
            "name": token,
            "file_system_names": [],
        }
        if wish.image is not None:
            body["image"] = {"family": wish.image}
        return MachineCall("POST", "/api/v1/instance-operations/launch", body)

    def find_created_id(self, data: object) -> str | None:
        """Return the id of the one instance."""
        ids = as_array(as_object(as_object(data).get("data")).get("instance_ids"))
        # One was ordered; another number cannot be attributed, so it is looked for by its name.
        if len(ids) == 1:
            return parse_text(ids[0], 80)
        return None

    def describe_creation(self, offer: Offer, wish: RentalRequest, token: str) -> str:
        """Return the exact call, and the one that may be needed before it."""
        said = self.format_call(self.build_creation_call(offer, wish, token))
        return translate(
            "{said} with the name of your key (before it, POST /api/v1/ssh-keys if the key is new)",
            said=said,
        )

    async def prepare_creation(self, wish: RentalRequest, token: str) -> Mapping[str, object]:
        """Return the public key's name in the account, registering it if it is new."""
        if not wish.public_key.strip():
            raise ProviderError(
                translate("Lambda launches nothing without a public key"), sent=False
            )
        http = self.account.http
        await self.account.pace.wait_turn("keys")
        answer = await http.get("/api/v1/ssh-keys")
        items = read_single_page(
            answer, as_object(answer.data).get("data"), "keys", self.account.undocumented_error
        )
        for item in map(as_object, items):
            name = parse_text(item.get("name"), 80)
            # A key that the account has already is used under the name that it has there.
            if name is not None and _same_key(item.get("public_key"), wish.public_key):
                return {"ssh_key_names": [name]}
        await self.account.pace.wait_turn("keys")
        await http.send("POST", "/api/v1/ssh-keys", {"name": token, "public_key": wish.public_key})
        return {"ssh_key_names": [token]}


def _same_key(one: object, other: str) -> bool:
    """Return whether two lines have the same key, ignoring their comments."""
    # Type and key; the comment after them may differ.
    return isinstance(one, str) and one.split()[:2] == other.split()[:2]


def _read_gpu_model(kind: Mapping[str, object]) -> str:
    return parse_text(kind.get("gpu_description"), 60) or ""
