"""Kubernetes through kubectl, which handles all logins: the machine is a Job or a bare pod.

A Job is parked by suspending it (its pods end, the Job remains) and destroyed by deleting it *with*
its pods. A pod with an owner would only be recreated, so it is never deleted: the call is sent to
its owner. The node bills whether a pod runs on it or not, and kubectl does not report its price.

Permissions are often limited to a namespace, and to reading objects by name. So lists are requested
only for the namespaces of the boxes, and if a list is refused, each box is read by name.
https://kubernetes.io/docs/concepts/workloads/controllers/job/,
https://kubernetes.io/docs/reference/kubectl/ (verified 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from rgt_tui.language import english_texts, translate
from rgt_tui.model import (
    BillingVerb,
    JobObject,
    KubernetesPod,
    Leftover,
    Lifecycle,
    Meter,
    MeterKind,
    ObjectMetadata,
    ObjectOwner,
    Permit,
    ProviderRef,
    choose_box_pod,
    how_many,
    steady_time,
)
from rgt_tui.providers.answers import AnswerProof, moment_of
from rgt_tui.providers.command_line import CommandLine
from rgt_tui.providers.control_plane import (
    AccountContext,
    AuthError,
    BadAnswer,
    Instance,
    ListRefused,
    Market,
    NotFound,
    OneMachine,
    PermitRefused,
    ProviderError,
    StateConflict,
    Unreachable,
    make_printable,
    use_permit,
)

_PART = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_ID = re.compile(rf"({_PART})/(job|pod)/({_PART})")
"""``namespace/job/name`` or ``namespace/pod/name``: names as in
https://kubernetes.io/docs/concepts/overview/.
"""
_REASON = re.compile(r"Error from server(?: \((\w+)\))?:")
_NO_LOGIN = "error: You must be logged in to the server"
"""kubectl's text for ``Unauthorized``, whatever the server's message is."""
NODE_BILLS = "the node is billed, with or without a pod, until it is removed from the cluster"
PHASES = {"Pending": Lifecycle.STARTING, "Running": Lifecycle.RUNNING, "Succeeded": Lifecycle.GONE,
          "Failed": Lifecycle.GONE}  # fmt: skip


REFUSALS: dict[int | str, AnswerProof] = {
    "Forbidden": AnswerProof.NOTHING,
    "Unauthorized": AnswerProof.NOTHING,
    "NotFound": AnswerProof.ASK,
    "Conflict": AnswerProof.ASK,
    "Invalid": AnswerProof.NOTHING,
    "BadRequest": AnswerProof.NOTHING,
    "MethodNotAllowed": AnswerProof.NOTHING,
}
"""Reasons of a Status: https://kubernetes.io/docs/reference/using-api/api-concepts/, as printed by
kubectl.
"""
ANSWERS = dict.fromkeys(BillingVerb, REFUSALS)


def open_account(ref: ProviderRef, context: AccountContext) -> KubernetesAccount:
    """Return the cluster that a Job or pod belongs to; see `rgt_tui.providers.control_plane.Open`."""
    return KubernetesAccount(
        ref, CommandLine(None, context.env, timeout_s=3 * context.timeout_s), context.clock
    )


class KubernetesBox(OneMachine["KubernetesAccount"]):
    """The control plane of one Job or pod."""

    @property
    def console_url(self) -> str:
        """The command that shows the object, because there is no page."""
        namespace, _, name = self._instance.partition("/")
        return self._account.format_command("get", name, f"--namespace={namespace}")

    async def read(self, instance: str) -> Meter:
        """Read one object; see `Provider.read`."""
        return await self._account.read(instance)

    async def list(self) -> tuple[Instance, ...]:
        """List the unfinished Jobs and the bare pods in the namespaces of all boxes."""
        return await self._account.list()

    async def start(self) -> str:
        """Resume a suspended Job."""
        namespace, kind, name = _split_instance_id(self._instance)
        if kind != "job":
            raise ProviderError(
                translate("a pod is not started again; create it again"), sent=False
            )
        return await self._account.run_action(*_build_suspend_args(namespace, name, False))

    async def stop(self, permit: Permit) -> str:
        """Suspend the Job; see `Provider.stop`. Its pods end, and their own files are lost."""
        use_permit(permit, BillingVerb.PARK, self.ref, steady_time())
        namespace, kind, name = _refused_parts(self._instance)
        if kind != "job":
            raise PermitRefused(
                translate("a bare pod cannot be suspended, only deleted. Nothing was sent.")
            )
        return await self._account.run_action(*_build_suspend_args(namespace, name, True))

    async def destroy(self, permit: Permit) -> str:
        """Delete the Job with its pods, or a pod without an owner; see `Provider.destroy`."""
        use_permit(permit, BillingVerb.DESTROY, self.ref, steady_time())
        namespace, kind, name = _refused_parts(self._instance)
        if kind == "pod":
            owner = await self._account.find_owner(namespace, name)
            # Its owner would start a new pod, which bills again.
            if owner is not None:
                raise PermitRefused(
                    translate(
                        "the pod belongs to {kind} {name}, which would recreate it; name that "
                        "Job as the "
                        "instance, or scale its owner down. Nothing was sent.",
                        kind=make_printable(owner.kind, 40),
                        name=make_printable(owner.name, 120),
                    )
                )
        return await self._account.run_action(*_build_delete_args(namespace, kind, name))

    def describe_call(self, verb: BillingVerb, instance: str) -> str:
        """Return the exact command."""
        try:
            namespace, kind, name = _split_instance_id(instance)
        except ProviderError as error:
            return f"nothing: {error}"
        if verb is BillingVerb.PARK:
            return self._account.format_command(*_build_suspend_args(namespace, name, True))
        return self._account.format_command(*_build_delete_args(namespace, kind, name))

    def native_label(self, verb: BillingVerb) -> str:
        """Return kubectl's word."""
        if verb is BillingVerb.PARK:
            return "suspend"
        return "delete"

    def native_action(self, verb: BillingVerb) -> str:
        """Return the word used in ``Meter.actions``."""
        if verb is BillingVerb.PARK:
            return "suspend"
        return "delete"

    def list_kept_charges(self, verb: BillingVerb, instance: str) -> tuple[str, ...]:
        """Return what keeps billing."""
        return (
            translate(NODE_BILLS),
            "volumes that were claimed (PersistentVolumeClaim), until they are deleted",
        )

    def list_tiers(self, instance: str) -> dict[str, str]:
        """Return nothing: a pod does not report the storage behind a claim."""
        return {}


class KubernetesAccount:
    """One cluster as one person sees it.

    It remembers the objects it has seen, to distinguish *deleted* from *never existed*.
    """

    def __init__(self, ref: ProviderRef, line: CommandLine, clock: Callable[[], float]) -> None:
        self.ref = ref
        self._line = line
        self._clock = clock
        self._seen: set[str] = set()
        self._namespaces: set[str] = set()
        """Namespaces of the opened boxes."""

    def open_control_plane(self, instance: str) -> KubernetesBox:
        """Return the control plane of one Job or pod."""
        if _ID.fullmatch(instance):
            self._namespaces.add(instance.partition("/")[0])
        return KubernetesBox(self, instance)

    async def _list_in_namespaces(self, what: str) -> list[object]:
        """Return the objects of a kind in the namespaces of the boxes; without boxes, in all.

        Raises:
            ProviderError: `ListRefused` if the person may not list them.
        """
        places = [f"--namespace={name}" for name in sorted(self._namespaces)] or [
            "--all-namespaces"
        ]
        try:
            return [item for place in places for item in await self._list_items(what, place)]
        except AuthError as error:
            # A role may allow `get` by name and not `list`; the caller then reads each box.
            raise ListRefused(str(error), code=error.code) from None

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """List the persistent volume claims, which outlive Jobs and pods.

        Their price is unknown.
        """
        items = await self._list_in_namespaces("persistentvolumeclaims")
        found = []
        for item in items:
            meta = _convert_object(item, ObjectMetadata, "metadata")
            if isinstance(item, dict):
                status = item.get("status")
            else:
                status = None
            if isinstance(status, dict):
                capacity = status.get("capacity")
            else:
                capacity = None
            if isinstance(capacity, dict):
                size = capacity.get("storage")
            else:
                size = None
            found.append(
                Leftover(
                    what="volume",
                    id=f"{make_printable(meta.namespace, 120)}/{make_printable(meta.name, 120)}",
                    name=make_printable(meta.name, 120),
                    size_gb=_parse_gigabytes(size),
                    region=make_printable(meta.namespace, 120),
                    how=self.format_command(
                        "delete", "pvc", meta.name, f"--namespace={meta.namespace}"
                    ),
                )
            )
        return tuple(found)

    def open_market(self) -> Market | None:
        """Return None: Jobs are submitted, not rented."""
        return None

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    @property
    def source(self) -> str:
        """The source of the readings."""
        if self.ref.via:
            return f"kubectl, context {make_printable(self.ref.via, 80)}"
        return "kubectl, current context"

    def _kubectl_command(self, words: tuple[str, ...]) -> tuple[str, ...]:
        return ("kubectl", *((f"--context={self.ref.via}",) if self.ref.via else ()), *words)

    def format_command(self, *words: str) -> str:
        """Return the command as a person would type it."""
        return make_printable(self._line.format_command(self._kubectl_command(words)), 400)

    async def run_action(self, *words: str) -> str:
        """Run a command that changes something, once.

        Raises:
            ProviderError: its code is the reason of the server's Status, if kubectl prints one.
        """
        return make_printable((await self._run_kubectl(*words)).strip(), 200) or translate(
            "kubectl said nothing"
        )

    async def _run_kubectl(self, *words: str) -> str:
        said = await self._line.run(*self._kubectl_command(words))
        if not said.status:
            return said.out
        found = _REASON.search(said.err)
        reason = (found[1] or "") if found else ""
        if said.err.startswith(_NO_LOGIN):
            reason = "Unauthorized"
        told = f"{self.source}: {said.err or f'ended with {said.status}'}"
        kinds = {
            "Forbidden": AuthError,
            "Unauthorized": AuthError,
            "NotFound": NotFound,
            "Conflict": StateConflict,
        }
        # Without a reason the server did not answer: kubectl itself failed, e.g. its login plugin.
        default: type[ProviderError] = Unreachable
        if reason:
            default = BadAnswer
        raise kinds.get(reason, default)(told, code=reason)

    async def _list_items(self, what: str, *which: str) -> tuple[object, ...]:
        """Return a complete list, or fail; kubectl itself requests all pages."""
        data = _decode_json(await self._run_kubectl("get", what, *which, "--output=json"))
        if isinstance(data, dict):
            items = data.get("items")
        else:
            items = None
        if not isinstance(items, list):
            raise BadAnswer(
                translate(
                    "{source}: the list of {what} has no 'items'; it cannot be used",
                    source=self.source,
                    what=what,
                )
            )
        return tuple(items)

    async def _fetch_object(self, namespace: str, kind: str, name: str) -> object:
        return _decode_json(
            await self._run_kubectl("get", kind, name, f"--namespace={namespace}", "--output=json")
        )

    async def _pods_of(self, namespace: str, job: str) -> tuple[KubernetesPod, ...]:
        items = await self._list_items(
            "pods", f"--namespace={namespace}", f"--selector=job-name={job}"
        )
        return tuple(_convert_object(item, KubernetesPod) for item in items)

    async def find_owner(self, namespace: str, name: str) -> ObjectOwner | None:
        """Return the owner that would recreate a pod; None = none, or there is no such pod."""
        try:
            pod = _convert_object(await self._fetch_object(namespace, "pod", name), KubernetesPod)
        except NotFound:
            return None
        return pod.metadata.controller

    async def list(self) -> tuple[Instance, ...]:
        """Return unfinished Jobs, and pods without an owner.

        Raises:
            ProviderError: one of the two lists is incomplete.
        """
        jobs = [_convert_object(item, JobObject) for item in await self._list_in_namespaces("jobs")]
        pods = [
            _convert_object(item, KubernetesPod) for item in await self._list_in_namespaces("pods")
        ]
        found = []
        for job in jobs:
            # A finished Job stays until its TTL or a person deletes it; nothing of it runs.
            if job.end_condition is None:
                meta = job.metadata
                mine = tuple(
                    pod
                    for pod in pods
                    if pod.metadata.namespace == meta.namespace
                    and pod.metadata.controller is not None
                    and pod.metadata.controller.name == meta.name
                )
                found.append(
                    self._build_instance(
                        f"{meta.namespace}/job/{meta.name}", self._of_job(job, mine), mine
                    )
                )
        for pod in pods:
            meta = pod.metadata
            # Pods of a Job count with it; other owners would recreate theirs.
            if meta.controller is None and pod.status.phase not in ("Succeeded", "Failed"):
                found.append(
                    self._build_instance(
                        f"{meta.namespace}/pod/{meta.name}", self._of_pod(pod), (pod,)
                    )
                )
        return tuple(found)

    def _build_instance(
        self, ident: str, meter: Meter, pods: tuple[KubernetesPod, ...]
    ) -> Instance:
        _split_instance_id(ident)
        self._seen.add(ident)
        return Instance(
            id=ident,
            name=make_printable(ident.rpartition("/")[2], 120),
            meter=meter,
            gpu_count=sum(pod.gpu_count for pod in pods) or None,
            region=make_printable(ident.partition("/")[0], 120),
        )

    async def read(self, instance: str) -> Meter:
        """Read one Job with its pods, or one pod. Errors are returned as a meter with an error."""
        try:
            namespace, kind, name = _split_instance_id(instance)
            try:
                one = await self._fetch_object(namespace, kind, name)
            except NotFound:
                # Pods can outlive a Job that was deleted with --cascade=orphan, and keep their
                # GPUs.
                if kind == "job" and instance in self._seen:
                    left = await self._pods_of(namespace, name)
                else:
                    left = ()
                return self._of_orphans(left) or self._build_absent_meter(instance)
            self._seen.add(instance)
            if kind == "pod":
                return self._of_pod(_convert_object(one, KubernetesPod))
            job = _convert_object(one, JobObject)
            try:
                pods = await self._pods_of(namespace, name)
            except AuthError:
                return self._build_job_meter(job)
            return self._of_job(job, pods)
        except ProviderError as error:
            return Meter(at=self._clock(), source=self.source, error=str(error))

    def _of_orphans(self, pods: tuple[KubernetesPod, ...]) -> Meter | None:
        """Return the meter for a deleted Job's pods, which hold their GPUs until they end."""
        live = [pod for pod in pods if PHASES.get(pod.status.phase) is not Lifecycle.GONE]
        if live:
            return self._build_meter(
                Lifecycle.RUNNING, f"the Job is deleted, {len(live)} pods left", pods
            )
        return None

    def _build_absent_meter(self, instance: str) -> Meter:
        if instance not in self._seen:
            # A wrong name or another cluster looks the same, so the meter is unknown, not off.
            return Meter(
                lifecycle=Lifecycle.GONE,
                at=self._clock(),
                source=f"{self.source}; no such object, never seen there",
            )
        return self._build_meter(Lifecycle.GONE, "not found", ())

    def _of_pod(self, pod: KubernetesPod) -> Meter:
        life = PHASES.get(pod.status.phase, Lifecycle.UNKNOWN)
        words = pod.status.phase
        # Until its containers have ended (grace period), it holds the GPU.
        if pod.metadata.deletion_timestamp is not None and life is not Lifecycle.GONE:
            life, words = Lifecycle.RUNNING, f"{words}, being deleted"
        actions: tuple[str, ...] = ()
        if life is not Lifecycle.GONE:
            actions = ("delete",)
        return self._build_meter(life, words, (pod,), actions)

    # As its state: evidence with these texts is compared between rgt in two languages.
    @english_texts()
    def _of_job(self, job: JobObject, pods: tuple[KubernetesPod, ...]) -> Meter:
        """Return the meter of a Job, which is stopped or over only without running pods."""
        live = [pod for pod in pods if PHASES.get(pod.status.phase) is not Lifecycle.GONE]
        if job.end_condition is not None:
            life, words = Lifecycle.GONE, job.end_condition.type
        elif job.spec.suspend:
            life, words = Lifecycle.STOPPED, "suspended"
        else:
            life, words = Lifecycle.STARTING, "no pod runs"
        others, chosen = {}, ""
        if live:
            box, cells = choose_box_pod(live), tuple(job.metadata.cell_lines)
            for pod in live:
                name = make_printable(pod.metadata.name, 120)
                if pod is box:
                    chosen = translate(
                        "{name} is the box: {pod}", name=name, pod=_describe_pod(pod, cells)
                    )
                elif pod.status.phase != "Pending":
                    others[name] = translate(
                        "{pod}; its files outside of {claims} are not listed",
                        pod=_describe_pod(pod, cells),
                        claims=_list_claims(pod),
                    )
            life = max(
                (PHASES.get(pod.status.phase, Lifecycle.UNKNOWN) for pod in live),
                key=list(Lifecycle).index,
            )
            if words != "no pod runs":
                words = f"{words}, {len(live)} pods left"
            else:
                words = live[0].status.phase
            if any(pod.status.phase == "Running" for pod in live):
                life = Lifecycle.RUNNING
        actions = ("delete",) if job.end_condition or job.spec.suspend else ("suspend", "delete")
        meter = self._build_meter(life, words, pods, actions)
        if not others:
            return meter
        return msgspec.structs.replace(meter, others=others, chosen=chosen)

    @english_texts()
    def _build_job_meter(self, job: JobObject) -> Meter:
        """Return the meter of a Job whose pods may not be listed, by its own pod counts.

        The count of terminating pods may be missing: a suspended Job may then still hold its GPUs.
        """
        status = job.status
        left = status.active + (status.terminating or 0)
        actions = ("delete",) if job.end_condition or job.spec.suspend else ("suspend", "delete")
        if left:
            # `ready` is absent on old servers: then a pod may run. Without active ones, those that
            # are being deleted are left, which run until they end.
            running = status.ready is None or status.ready > 0 or not status.active
            life, words = (
                (Lifecycle.RUNNING if running else Lifecycle.STARTING),
                f"{left} pods by the Job",
            )
        elif job.end_condition is not None:
            life, words = Lifecycle.GONE, job.end_condition.type
        elif not job.spec.suspend:
            life, words = Lifecycle.STARTING, "no pod runs"
        # Before 1.28 a Job does not count its pods that are ending, so "suspended" proves nothing.
        elif status.terminating is None:
            life, words = Lifecycle.UNKNOWN, "suspended; unknown whether its pods have ended"
        else:
            life, words = Lifecycle.STOPPED, "suspended"
        meter = self._build_meter(life, f"{words} (its pods may not be listed)", (), actions)
        # One of them is the box.
        if left < 2:
            return meter
        unlisted = translate(
            "{pods} besides the box, which may not be listed", pods=how_many(left - 1, "pod")
        )
        return msgspec.structs.replace(meter, others={"unlisted": unlisted})

    def _build_meter(
        self,
        life: Lifecycle,
        words: str,
        pods: tuple[KubernetesPod, ...],
        actions: tuple[str, ...] = (),
    ) -> Meter:
        """Return a meter without a price, because the node is what bills."""
        kinds = {
            Lifecycle.RUNNING: MeterKind.COMPUTE_AND_STORAGE,
            Lifecycle.STARTING: MeterKind.UNKNOWN,
            Lifecycle.STOPPED: MeterKind.STORAGE_ONLY,
            Lifecycle.GONE: MeterKind.STORAGE_ONLY,
        }
        return Meter(
            kind=kinds.get(life, MeterKind.UNKNOWN),
            lifecycle=life,
            at=self._clock(),
            source=self.source,
            native_status=make_printable(words, 80),
            actions=actions,
            names=tuple(pod.metadata.uid for pod in pods),
            created=min(
                _list_valid_times(pod.metadata.creation_timestamp for pod in pods), default=None
            ),
            started=max(_list_valid_times(pod.status.start_time for pod in pods), default=None),
            doubt=NODE_BILLS,
            unpriced=("the node",),
        )


def _describe_pod(pod: KubernetesPod, cells: Sequence[str]) -> str:
    """Return what a pod of a Job holds: its cell, phase, GPUs and node."""
    parts = []
    if pod.job_index is not None and pod.job_index < len(cells):
        parts.append(f"cell {make_printable(cells[pod.job_index], 80)}")
    phase = pod.status.phase
    if pod.metadata.deletion_timestamp is not None:
        phase = f"{phase}, being deleted"
    parts += [make_printable(phase, 40), how_many(pod.gpu_count, "GPU")]
    if pod.spec.node_name:
        parts.append(f"on {make_printable(pod.spec.node_name, 80)}")
    return ", ".join(parts)


def _list_claims(pod: KubernetesPod) -> str:
    names = [
        make_printable(one.persistent_volume_claim.claim_name, 80)
        for one in pod.spec.volumes
        if one.persistent_volume_claim is not None
    ]
    return " and ".join(names) or "claims (it has none)"


def _list_valid_times(times: Iterable[datetime | None]) -> list[float]:
    """Return the times that are given and valid."""
    # Kubernetes' times are in UTC; without a zone Python would take them as local.
    aware = (at if at.tzinfo else at.replace(tzinfo=UTC) for at in times if at is not None)
    return [found for at in aware if (found := moment_of(at.timestamp())) is not None]


def _build_suspend_args(namespace: str, name: str, on: bool) -> tuple[str, ...]:
    if on:
        patch = '{"spec":{"suspend":true}}'
    else:
        patch = '{"spec":{"suspend":false}}'
    return ("patch", "job", name, f"--namespace={namespace}", "--type=merge", f"--patch={patch}")


def _build_delete_args(namespace: str, kind: str, name: str) -> tuple[str, ...]:
    # Deleting a Job without a policy may leave its pods behind, which keep the GPU.
    policy = ("--cascade=background",) if kind == "job" else ()
    return ("delete", kind, name, f"--namespace={namespace}", *policy, "--wait=false")


def _split_instance_id(instance: str) -> tuple[str, str, str]:
    found = _ID.fullmatch(instance)
    if found is None:
        raise BadAnswer(
            translate(
                "{instance!r} is neither namespace/job/name nor namespace/pod/name; correct "
                "the instance in the fleet file",
                instance=make_printable(instance, 120),
            ),
            sent=False,
        )
    return found[1], found[2], found[3]


def _refused_parts(instance: str) -> tuple[str, str, str]:
    try:
        return _split_instance_id(instance)
    except BadAnswer as error:
        raise PermitRefused(str(error)) from None


def _decode_json(text: str) -> object:
    try:
        data: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise BadAnswer(translate("kubectl printed something that is not JSON")) from None
    return data


T = TypeVar("T")


def _convert_object(item: object, kind: type[T], key: str | None = None) -> T:
    try:
        value = item
        if key and isinstance(item, dict):
            value = item.get(key)
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadAnswer(
            translate(
                "kubectl shows an object that is not as documented: {error}",
                error=make_printable(error),
            )
        ) from None


def _parse_gigabytes(text: object) -> float | None:
    """Return a quantity in GB.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    if isinstance(text, str):
        found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([KMGTP]i?)?", text)
    else:
        found = None
    if found is None:
        return None
    unit = found[2] or " "
    return (
        # Quantities: Ki, Mi, … are powers of 1024, and k, M, … of 1000.
        float(found[1])
        * float((1024 if unit.endswith("i") else 1000) ** " KMGTP".index(unit[0]))
        / 1e9
    )
