"""The pod of a Kubernetes Job: volumes, GPUs and grace period, as the agent prints it and rgt creates it."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "SHARED_MEMORY",
    "WrongManifest",
    "parse_claim",
    "pod_body",
    "restart_rules",
    "yaml_lines",
]

SHARED_MEMORY = "/dev/shm"
"""A container gets only 64 MB here by default, and data workers that pass batches through shared
memory then die of a bus error. A memory-backed volume has the container's memory limit as its size
and counts towards it.
"""
CLAIM = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A name of a Kubernetes object (RFC 1123, with dots). Volume names may not contain dots."""


class WrongManifest(Exception):
    """An option is invalid; the message says why."""


def parse_claim(claim: str) -> tuple[str, str]:
    """Return name and mount path of ``NAME:/MOUNT``.

    Raises:
        WrongManifest: It has another form.
    """
    name, _, mount = claim.partition(":")
    mount = mount.rstrip("/")
    if not CLAIM.fullmatch(name) or len(name) > 253 or not mount.startswith("/") or ":" in mount:
        raise WrongManifest(
            f"claim {claim}: write NAME:/MOUNT, the name in lower case letters, digits, - and ., "
            "the mount below / and without a colon"
        )
    return name, mount


def pod_body(
    container: dict[str, Any], claims: list[str], gpus: int, grace_s: int
) -> dict[str, Any]:
    """Return the specification of a pod that runs one container once.

    Args:
        container: The container, without volumes and GPUs.
        claims: ``NAME:/MOUNT`` of each persistent volume claim; one claim may be mounted several
            times.
        gpus: How many GPUs to request.
        grace_s: Seconds between SIGTERM and SIGKILL when the pod is ended.

    Raises:
        WrongManifest: A claim has another form, or two are mounted at the same place.
    """
    mounts = [parse_claim(claim) for claim in claims]
    places = [place for _, place in mounts]
    twice = sorted({place for place in places if places.count(place) > 1})
    if twice:
        raise WrongManifest(
            f"two claims are mounted at {', '.join(twice)}: give each its own /MOUNT"
        )
    volumes = {
        # Not the claim's name: it may contain dots, which a volume's name must not.
        name: "vol-%d" % number
        for number, name in enumerate(dict.fromkeys(name for name, _ in mounts))
    }
    held: list[dict[str, Any]] = [
        {"name": volume, "persistentVolumeClaim": {"claimName": name}}
        for name, volume in volumes.items()
    ]
    mounted = [{"name": volumes[name], "mountPath": place} for name, place in mounts]
    if SHARED_MEMORY not in places:
        held.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
        mounted.append({"name": "shm", "mountPath": SHARED_MEMORY})
    container = dict(container, volumeMounts=mounted)
    if gpus:
        # Kubernetes takes the limit of an extended resource as its request, too.
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {
        # The Job itself starts a new pod, and counts it against its back-off limit.
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_s,
        "containers": [container],
        "volumes": held,
    }


FINAL = (1, 2, 3, 4, 74)
"""Exit statuses of the runner that a new pod would only repeat. After all others (75, a signal, a
lost node) the pod is restarted.
"""


def restart_rules(container: str, cells: int = 0, at_once: int = 1) -> dict[str, Any]:
    """Return a Job's number of pods, and what happens when one fails.

    With `cells` this is an indexed Job with one pod per cell: an index that failed for good does
    not stop the others (``backoffLimitPerIndex`` and ``FailIndex``: Kubernetes 1.29 or newer;
    stable since 1.33).

    Args:
        container: The container that runs the agent's runner.
        cells: How many cells get a pod of their own; 0 = one pod runs all of them.
        at_once: How many of these pods run at the same time.
    """
    final = {"containerName": container, "operator": "In", "values": list(FINAL)}
    disrupted = {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    restarts = 20
    if not cells:
        return {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": restarts,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": final}, disrupted]},
        }
    return {
        "completionMode": "Indexed",
        "completions": cells,
        "parallelism": min(at_once, cells),
        "backoffLimitPerIndex": restarts,
        "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": final}, disrupted]},
    }


def yaml_lines(value: Any, indent: str = "") -> list[str]:
    """Return the YAML lines of a value.

    Strings are quoted as in JSON, which every YAML parser accepts.
    """
    rows: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            nested = isinstance(item, (dict, list)) and bool(item)
            rows += [indent + key + ":" + ("" if nested else " " + json.dumps(item))]
            rows += yaml_lines(item, indent + "  ") if nested else []
        return rows
    for item in value:
        if isinstance(item, dict) and item:
            first, *rest = yaml_lines(item, indent + "  ")
            rows += [indent + "- " + first.lstrip(" ")] + rest
        else:
            rows.append(indent + "- " + json.dumps(item))
    return rows
