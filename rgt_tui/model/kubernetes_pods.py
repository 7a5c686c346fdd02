"""Pods: the fleet file's keys for one, what kubectl prints of them, and which of several is the box.

The connection and the control plane both use `choose_box_pod`, so the gate judges the pod that rgt
is connected to, and lists the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from rgt_wire.kubernetes_job import WrongManifest, pod_body

from rgt_tui.model.box import KubectlRoute
from rgt_tui.model.plain import FrozenStruct

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation of a pod of an indexed Job; also a label since Kubernetes 1.28.
https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
"""
CELLS = "rgt/cells"
"""Annotation of a Job that runs a sweep: a JSON object, cell → its line of the queue, in the order
of the indexes.
"""


class ObjectOwner(FrozenStruct):
    """The owner of an object."""

    kind: str
    name: str
    controller: bool = False


class ObjectMetadata(FrozenStruct, rename="camel"):
    """The metadata of every object."""

    name: str
    namespace: str = ""
    uid: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[ObjectOwner, ...] | None = None
    annotations: dict[str, str] | None = None

    @property
    def controller(self) -> ObjectOwner | None:
        """The owner that would create it again."""
        return next((one for one in self.owner_references or () if one.controller), None)

    @property
    def cell_lines(self) -> dict[str, str]:
        """A Job's cells with their queue lines, by index; empty if it runs no sweep."""
        text = (self.annotations or {}).get(CELLS, "{}")
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except (msgspec.DecodeError, RecursionError):
            return {}


class StateReason(FrozenStruct):
    """Why a container waits or has ended."""

    reason: str = ""
    message: str = ""


class ContainerState(FrozenStruct):
    """The state of a container."""

    waiting: StateReason | None = None
    terminated: StateReason | None = None


class ContainerResources(FrozenStruct):
    """The limits of a container."""

    limits: dict[str, str | int] | None = None


class PodContainer(FrozenStruct, rename={"image_id": "imageID"}):
    """A container, in the specification or the status of a pod."""

    name: str = ""
    image: str = ""
    image_id: str = ""
    resources: ContainerResources | None = None
    state: ContainerState = ContainerState()


class PodCondition(FrozenStruct):
    """A condition of a pod."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class ClaimSource(FrozenStruct, rename="camel"):
    """A persistent volume claim as a volume."""

    claim_name: str


class PodVolume(FrozenStruct, rename="camel"):
    """A volume of a pod."""

    persistent_volume_claim: ClaimSource | None = None


class PodSpec(FrozenStruct, rename="camel"):
    """The specification of a pod."""

    containers: tuple[PodContainer, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    node_name: str | None = None
    """None = not on a node yet."""


class PodStatus(FrozenStruct, rename="camel"):
    """The status of a pod."""

    phase: str = "Unknown"
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[PodContainer, ...] | None = None


class KubernetesPod(FrozenStruct):
    """One pod."""

    metadata: ObjectMetadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_running(self) -> bool:
        """Whether commands may run in it, and it is not being deleted."""
        return self.status.phase == "Running" and self.metadata.deletion_timestamp is None

    @property
    def job_index(self) -> int | None:
        """Its index, if it is a pod of an indexed Job."""
        text = (self.metadata.annotations or {}).get(INDEX, "")
        if re.fullmatch(r"[0-9]{1,6}", text):
            return int(text)
        return None

    @property
    def gpu_count(self) -> int:
        """Number of GPUs: https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/."""
        held = [
            # nvidia.com/gpu, amd.com/gpu. Limits, because extended resources cannot be
            # overcommitted: a request must equal its limit.
            value
            for container in self.spec.containers
            if container.resources is not None
            for name, value in (container.resources.limits or {}).items()
            if name.endswith(".com/gpu")
        ]
        return sum(int(value) for value in held if re.fullmatch(r"[0-9]{1,6}", str(value)))


class ListedPods(FrozenStruct):
    """A list of pods."""

    items: tuple[KubernetesPod, ...] = ()


class JobSpec(FrozenStruct, rename="camel"):
    """The specification of a Job."""

    suspend: bool = False


class JobCondition(FrozenStruct):
    """One condition of a Job."""

    type: str
    status: str = ""
    message: str = ""


class JobStatus(FrozenStruct, rename="camel"):
    """The status of a Job."""

    conditions: tuple[JobCondition, ...] | None = None
    active: int = 0
    """Pods that wait or run and are not being deleted."""
    ready: int | None = None
    """Those of them that run; None = not reported."""
    terminating: int | None = None
    """Pods being deleted that have not ended; None = not reported, as by servers before 1.28."""
    completed_indexes: str = ""
    """Indexes of an indexed Job whose pod succeeded, such as ``0,2-4``."""
    failed_indexes: str = ""


class JobObject(FrozenStruct):
    """One Job."""

    metadata: ObjectMetadata
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def end_condition(self) -> JobCondition | None:
        """The condition ``Complete`` or ``Failed``; None while it may still run pods."""
        held = [one for one in self.status.conditions or () if one.status == "True"]
        return next((one for one in held if one.type in ("Complete", "Failed")), None)


def read_index_ranges(text: str) -> set[int]:
    """Return the numbers of ``0,2-4``; what cannot be read is left out."""
    most_indexes = 100_000
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        if match is not None:
            last = min(int(match[2] or match[1]), most_indexes)
            found.update(range(int(match[1]), last + 1))
    return found


def choose_box_pod(pods: Sequence[KubernetesPod]) -> KubernetesPod | None:
    """Return the pod that is the box; None if none runs, or several could be.

    A running pod without an index is the box. The pods of an indexed Job are the box's work: only
    if nothing else runs, the one with the lowest index of that Job is the box.
    """
    running = [pod for pod in pods if pod.is_running]
    own = [pod for pod in running if pod.job_index is None]
    if len(own) == 1:
        return own[0]
    owners = {pod.metadata.controller for pod in running}
    if own or len(owners) != 1:
        return None
    # Of two pods with one index, the older one may be about to end.
    return min(running, key=lambda pod: (pod.job_index or 0, pod.metadata.name))


# The key `kubectl` of a box in the fleet file: its checks, and the keys that follow from it.


def _find_name_problem(value: str | None) -> str | None:
    """Check a name of a Kubernetes object; it becomes a word of kubectl's command line."""
    if value is None or re.fullmatch(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", value):
        return None
    return "is not a name of Kubernetes: lower case letters, digits, '-' and '.'"


def _find_context_problem(value: str) -> str | None:
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._:/@+-]{0,252}", value):
        return None
    return "is not a context of kubeconfig; kubectl config get-contexts lists them"


def _find_selector_problem(value: str | None) -> str | None:
    if value is None or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/=!, ()-]{0,500}", value):
        return None
    return 'is not a label selector such as "app=trainer"'


def _find_image_problem(value: str | None) -> str | None:
    if value is None or re.fullmatch(r"[a-z0-9][A-Za-z0-9._/:@-]{0,500}", value):
        return None
    return "is not the name of an image"


def _find_count_problem(value: int) -> str | None:
    if 0 <= value <= 86_400:
        return None
    return "is out of range"


def _find_claims_problem(value: Sequence[str]) -> str | None:
    try:
        pod_body({}, list(value), 0, 0)
    except WrongManifest as error:
        return f"cannot be used: {error}"
    return None


KUBECTL_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "context": _find_context_problem,
    "namespace": _find_name_problem,
    "pod": _find_name_problem,
    "selector": _find_selector_problem,
    "job": _find_name_problem,
    "container": _find_name_problem,
    "image": _find_image_problem,
    "gpus": _find_count_problem,
    "grace_s": _find_count_problem,
    "claims": _find_claims_problem,
}
SSH_ONLY_KEYS = ("host", "port", "user", "identity", "known_hosts", "ssh_config", "tunnels")
"""Keys of a box that a pod cannot have."""


def implied_pod_keys(route: KubectlRoute, table: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a box that follow from its pod: `host`, and `profile` and `provider` if not given."""
    more: dict[str, Any] = {"host": route.place_text, "profile": table.get("profile", "kubernetes")}
    instance = route.instance_id
    if "provider" not in table and instance is not None and more["profile"] == "kubernetes":
        more["provider"] = {"kind": "kubernetes", "instance": instance, "via": route.context}
    return more
