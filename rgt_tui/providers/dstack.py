"""dstack's server API (https://dstack.ai/docs/reference/api/http/), tested on 0.22.5 (2026-11).

The machine is an *instance* of a fleet, not a run: after a run is stopped, its instance becomes
idle and keeps billing until its idle duration ends, three days by default. So there is no park, and
only deleting the instance ends the bill, which the server refuses while a run uses it.

The list is always requested with terminated instances: ``only_active`` omits every state but idle
and busy, so a machine being created or terminated, which bills, would look gone. A terminated
instance stays in the list, and its number in the fleet is reused: see
`DstackAccount.fetch_machine`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import ClassVar

from rgt_tui.language import translate
from rgt_tui.model import BillingVerb, Leftover, Lifecycle, MeterKind, ProviderRef
from rgt_tui.providers.answers import (
    AnswerProof,
    ListPage,
    as_array,
    as_object,
    parse_bool,
    parse_count,
    parse_number,
    parse_text,
    parse_time,
    read_pages,
)
from rgt_tui.providers.control_plane import (
    AccountContext,
    BadAnswer,
    NotFound,
    ProviderError,
    RequestPause,
    make_printable,
)
from rgt_tui.providers.http import AccountHttp, BodyError, open_http
from rgt_tui.providers.rented import START, MachineCall, RentedAccount, RentedMachine, state_of

VENDOR = "https://sky.dstack.ai"
KEY_ENV = "DSTACK_TOKEN"
PAGE = 1000
"""Instances per answer: https://github.com/dstackai/dstack (schemas/instances.py, 2026-08)."""
STATES = {
    "pending": (Lifecycle.STARTING, MeterKind.UNKNOWN),
    "provisioning": (Lifecycle.STARTING, MeterKind.COMPUTE_AND_STORAGE),
    "idle": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "busy": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "terminating": (Lifecycle.RUNNING, MeterKind.UNKNOWN),
    "terminated": (Lifecycle.GONE, MeterKind.NONE),
}
"""``status`` → state, and what is charged: an idle instance is charged like a busy one."""
MEANS = {
    "invalid_credentials": 401,
    "not_authenticated": 401,
    "forbidden": 403,
    "resource_not_exists": 404,
}
NO_PARK = (
    "dstack has no park: stopping the run leaves the instance idle, and it is billed until "
    "its idle time is over"
)
REFUSALS: dict[int | str, AnswerProof] = {
    400: AnswerProof.NOTHING,
    401: AnswerProof.NOTHING,
    403: AnswerProof.NOTHING,
    "resource_not_exists": AnswerProof.ASK,
    422: AnswerProof.NOTHING,
    429: AnswerProof.NOTHING,
}
"""https://dstack.ai/docs/reference/api/http/ (verified on server 0.22.5, 2026-11). 400 is also
returned while a run uses the instance, 403 for a wrong token, 422 for a malformed body.
"""
ANSWERS = {BillingVerb.PARK: {}, BillingVerb.DESTROY: REFUSALS}


def open_account(ref: ProviderRef, context: AccountContext) -> DstackAccount:
    """Return the server that an instance belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref, context, vendor=VENDOR, console=VENDOR, key_env=KEY_ENV, wrong=find_body_error
    )
    return DstackAccount(ref, http, context.clock)


def find_body_error(data: object) -> BodyError | None:
    """Return the error of a body: ``{"detail": {"msg", "code"}}``, or a list of such objects."""
    if not isinstance(data, dict) or "detail" not in data:
        return None
    # An object, a list of them, or plain text: the form depends on the layer that refused.
    detail = data["detail"]
    first = as_object(detail if isinstance(detail, dict) else next(iter(as_array(detail)), None))
    code = parse_text(first.get("code"), 80) or ""
    return BodyError(
        code,
        parse_text(first.get("msg"), 200) or parse_text(detail, 200) or "an error",
        MEANS.get(code),
    )


class DstackAccount(RentedAccount):
    """What one token can access on one server."""

    platform: ClassVar[str] = "dstack"
    labels: ClassVar[Mapping[BillingVerb, str]] = {BillingVerb.DESTROY: "dstack fleet delete"}
    words: ClassVar[Mapping[BillingVerb, str]] = {BillingVerb.DESTROY: "delete"}
    lacks: ClassVar[Mapping[str, str]] = {
        BillingVerb.PARK: NO_PARK,
        START: "dstack starts no instance again; apply the run once more",
    }
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[\w-]{1,60}/[\w.-]{1,80}/[0-9]{1,6}")
    """``project/fleet/number``."""

    def __init__(self, ref: ProviderRef, http: AccountHttp, clock: Callable[[], float]) -> None:
        super().__init__(ref, http, clock)
        self._below: dict[str, str] = {}
        """Host → the machine's id at the underlying provider."""
        self._below_pause = RequestPause()
        self._uuids: dict[str, str] = {}
        """Id → the server's own identifier of the instance first read under it."""

    async def fetch_machine(self, instance: str) -> RentedMachine:
        """Find one instance in the list of its project: the server has no call to read one by name.

        A later instance of the fleet reuses the number of a terminated one. So an id permanently
        means the first instance read under it: another one must not be mistaken for it, and deleted
        instead.
        """
        rows = [
            one
            for one in await self._list_instances(instance.partition("/")[0])
            if one[1].id == instance
        ]
        live = [one for one in rows if one[1].lifecycle is not Lifecycle.GONE]
        known = self._uuids.get(instance)
        # By the server's identifier, even if it is terminated: that is the answer to "is it gone?".
        same = [machine for uuid, machine in rows if uuid == known]
        if same:
            return same[0]
        if live and known is not None:
            raise self.undocumented_error(
                translate(
                    "another instance under the name {instance}",
                    instance=make_printable(instance, 120),
                )
            )
        if len(live) > 1:
            raise self.undocumented_error(
                translate(
                    "two instances under the name {instance}",
                    instance=make_printable(instance, 120),
                )
            )
        if live:
            self._uuids[instance] = live[0][0]
            return live[0][1]
        if rows:
            return rows[0][1]
        raise NotFound(
            translate("dstack's list lacks {instance}", instance=make_printable(instance, 120)),
            console=self.http.console,
        )

    async def fetch_all(self) -> tuple[RentedMachine, ...]:
        """Read the instances of all projects that the token may see, except terminated ones."""
        rows = await self._list_instances(None)
        return tuple(machine for _, machine in rows if machine.lifecycle is not Lifecycle.GONE)

    async def _list_instances(self, project: str | None) -> list[tuple[str, RentedMachine]]:
        """Return every instance, including terminated ones, with the server's identifier.

        Newest first.
        """
        # Terminated ones, too: without them a deleted instance looks like one that never existed.
        body = {"only_active": False, **({"project_names": [project]} if project else {})}
        found = []
        for raw in await self._fetch_pages("instances", body, PAGE, "created"):
            one = as_object(raw)
            if one.get("status") == "terminated" and not one.get("fleet_name"):
                continue  # From before fleets existed: without an id, and not billed.
            uuid = parse_text(one.get("id"), 80)
            if uuid is None:
                raise self.undocumented_error(translate("an instance without an id"))
            found.append((uuid, self.parse_machine(raw)))
        return found

    async def _fetch_pages(
        self, what: str, body: Mapping[str, object], limit: int, since: str
    ) -> tuple[object, ...]:
        """Return a complete list; the server continues after the last item's time and id."""

        async def read_page(cursor: str | None) -> ListPage:
            after = dict(zip(("prev_created_at", "prev_id"), (cursor or "").split(), strict=False))
            answer = await self.http.send_query(
                "POST", f"/api/{what}/list", {**body, "limit": limit, **after}
            )
            items = as_array(answer.data)
            # The server does not say whether there is more: only a page that is not full is the
            # last.
            if len(items) >= limit:
                last = as_object(items[-1])
            else:
                last = None
            if last is None:
                following = None
            else:
                following = " ".join(map(str, (last.get(since), last.get("id"))))
            if last is not None and not (
                parse_text(last.get(since)) and parse_text(last.get("id"))
            ):
                following = ""
            return ListPage(answer.data, following, answer)

        return await read_pages(read_page, what, self.undocumented_error)

    def parse_machine(self, raw: object) -> RentedMachine:
        """Parse one instance.

        Raises:
            BadAnswer: it has no project, fleet or number; any other invalid field becomes None.
        """
        box = as_object(raw)
        place = box.get("instance_num")
        identifier = f"{box.get('project_name')}/{box.get('fleet_name')}/{place}"
        if not (isinstance(place, int) and self.ids.fullmatch(identifier)):
            raise self.undocumented_error(
                translate("an instance without project, fleet and number")
            )
        lifecycle, bills = state_of(STATES, box.get("status"))
        status = make_printable(box.get("status") or "not said", 40)
        # Still billed, so it changes the words only, not the state.
        if box.get("unreachable") is True and lifecycle is not Lifecycle.GONE:
            status = f"{status}, unreachable"
        resources = as_object(as_object(box.get("instance_type")).get("resources"))
        gpus = as_array(resources.get("gpus"))
        backend = parse_text(box.get("backend"), 40)
        actions: tuple[str, ...] = ()
        if lifecycle is not Lifecycle.GONE:
            actions = ("delete",)
        return RentedMachine(
            id=identifier,
            name=parse_text(box.get("name")) or "",
            status=status,
            lifecycle=lifecycle,
            bills=bills,
            compute=parse_number(box.get("price")),
            actions=actions,
            host=parse_text(box.get("hostname"), 200),
            gpu=parse_text(as_object(next(iter(gpus), None)).get("name"), 60),
            gpu_count=parse_count(len(gpus)),
            region=" ".join(filter(None, (backend, parse_text(box.get("region"), 60)))) or None,
            created=parse_time(box.get("created")),
            # Not since a run began: an idle instance is billed like a busy one.
            billed_since=parse_time(box.get("created")),
            spot=parse_bool(resources.get("spot")),
        )

    def build_call(self, what: str, instance: str) -> MachineCall | None:
        """Return the call that deletes one instance of a fleet, never all of it, never forced."""
        if what != BillingVerb.DESTROY:
            return None
        project, fleet, place = instance.split("/")
        # `fleets/delete`, with the same rights, would delete the whole fleet.
        body = {"name": fleet, "instance_nums": [int(place)]}
        return MachineCall("POST", f"/api/project/{project}/fleets/delete_instances", body)

    async def learn_account(self, machines: tuple[RentedMachine, ...]) -> None:
        """Learn, rarely, which provider machine each instance is, so that no box counts twice."""
        await super().learn_account(machines)
        if machines and not self._below_pause.seconds_left(self.clock()):
            # Seconds for which the mapping from instances to the providers' machines is valid.
            runs_age = 300.0
            self._below_pause.begin(self.clock(), runs_age)
            # A nicety: without it a box that both providers list is shown twice, and nothing else
            # fails.
            with contextlib.suppress(ProviderError):
                body = {
                    "only_active": True,
                    "include_jobs": True,
                    "job_submissions_limit": 1,
                    "limit": 100,
                }
                runs = as_array((await self.http.send_query("POST", "/api/runs/list", body)).data)
                jobs = (as_object(as_object(run).get("latest_job_submission")) for run in runs)
                told = (as_object(job.get("job_provisioning_data")) for job in jobs)
                pairs = (
                    (parse_text(one.get("hostname"), 200), parse_text(one.get("instance_id"), 120))
                    for one in told
                )
                self._below.update((host, below) for host, below in pairs if host and below)

    def find_underlying_id(self, machine: RentedMachine) -> str | None:
        """Return the machine's id at the underlying provider, if its run reports it."""
        return self._below.get(machine.host or "")

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """List the volumes, which outlive runs. Dstack reports their past cost, not prices."""
        # Volumes per answer, the server's maximum (schemas/volumes.py).
        volume_page = 100
        found = await self._fetch_pages("volumes", {"only_active": True}, volume_page, "created_at")
        return tuple(map(self._parse_leftover, found))

    def _parse_leftover(self, raw: object) -> Leftover:
        item = as_object(raw)
        name, project = parse_text(item.get("name"), 80), parse_text(item.get("project_name"), 80)
        if name is None or project is None:
            raise self.undocumented_error(translate("a volume without name and project"))
        settings = as_object(item.get("configuration"))
        users = (
            as_object(as_object(one).get("instance")) for one in as_array(item.get("attachments"))
        )
        return Leftover(
            what="volume",
            id=f"{project}/{name}",
            name=name,
            region=" ".join(
                filter(None, (parse_text(settings.get(key), 60) for key in ("backend", "region")))
            )
            or None,
            used_by=tuple(
                f"{project}/{one.get('fleet_name')}/{one.get('instance_num')}"
                for one in users
                if one.get("fleet_name")
            ),
            how=f"dstack volume delete {make_printable(name, 80)} --project "
            f"{make_printable(project, 80)}",
        )

    def judge_answer(self, what: str, data: object) -> str:
        """Require the documented empty answer."""
        if data is not None:
            raise BadAnswer(
                translate("dstack did not answer as documented; read the state"),
                console=self.http.console,
                status=200,
            )
        return translate("nothing said against it")
