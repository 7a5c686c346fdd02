"""A runner as a Kubernetes Job: the manifest is printed, applying it is for who has the rights."""

from __future__ import annotations

import hashlib
import json
import re

from rgt_box.cells.jobfile import Job
from rgt_box.cells.process import grace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FINAL = (1, 2, 3, 4, 74)
"""Exit statuses of the runner that another pod would only repeat; all others (75, a signal, a lost node) go on."""

RESTARTS = 20
SHARED_MEMORY = "/dev/shm"
"""A container gets 64 MB there, and data workers that hand over batches through it die of a bus error. A volume in
memory has the memory limit of the container as its size, and counts towards it."""
LONGEST_NAME = 63
MOST_PODS = 100_000
"""Of an indexed Job; its last pod's index is one less."""
CLAIM = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A name of a Kubernetes object (RFC 1123, with dots). Names of volumes may have no dots."""


class Wrong(Exception):
    """An option makes no sense; the message says how."""


def manifest(job: Job, words: list[str], image: str, claims: list[str], gpus: int, cells: int) -> str:
    """Return the Job as YAML.

    Args:
        job: The job; its directory must lie on one of the claims.
        words: The command line of the runner, as it is inside of the container.
        image: The container image.
        claims: ``NAME:/MOUNT`` of each persistent volume claim; one claim may be mounted at several places.
        gpus: How many GPUs to ask for.
        cells: How many cells have an index, where each gets a pod of its own.

    Raises:
        Wrong: for a claim that is not of that form, or that Kubernetes would refuse.
    """
    mounts = [_mount(claim) for claim in claims]
    places = [place for _, place in mounts]
    twice = sorted({place for place in places if places.count(place) > 1})
    if twice:
        raise Wrong("two claims are mounted at %s: give each its own /MOUNT" % ", ".join(twice))
    if not any(job.folder == place or job.folder.startswith(place + "/") for place in places):
        raise Wrong(
            "no --claim NAME:/MOUNT holds the job directory %s: the pod would not see it" % job.folder
        )
    volumes = {
        name: "vol-%d" % number for number, name in enumerate(dict.fromkeys(name for name, _ in mounts))
    }
    held: list[dict[str, Any]] = [
        {"name": volume, "persistentVolumeClaim": {"claimName": name}} for name, volume in volumes.items()
    ]
    mounted = [{"name": volumes[name], "mountPath": place} for name, place in mounts]
    if SHARED_MEMORY not in places:
        held.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
        mounted.append({"name": "shm", "mountPath": SHARED_MEMORY})
    container: dict[str, Any] = {"name": "runner", "image": image, "command": words, "volumeMounts": mounted}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    pod = {
        "restartPolicy": "Never",
        # A cell that is asked to stop has this long to save, and the runner needs a moment to write it down.
        "terminationGracePeriodSeconds": int(grace()) + 30,
        "containers": [container],
        "volumes": held,
    }
    spec = dict(fan_out(job, cells), template={"spec": pod})
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job_name(job.folder)}, "spec": spec}
    return "# kubectl apply -f FILE\n" + "\n".join(yaml(body)) + "\n"


def _mount(claim: str) -> tuple[str, str]:
    """Return name and mount path of ``NAME:/MOUNT``.

    Raises:
        Wrong: It has another form.
    """
    name, _, mount = claim.partition(":")
    mount = mount.rstrip("/")
    if not CLAIM.fullmatch(name) or len(name) > 253 or not mount.startswith("/") or ":" in mount:
        raise Wrong(
            "--claim %s: write NAME:/MOUNT, the name in lower case letters, digits, - and ., the mount below / and "
            "without a colon" % claim
        )
    return name, mount


def fan_out(job: Job, cells: int) -> dict[str, Any]:
    """Return how many pods there are, and what becomes of one that fails.

    With ``parallel`` above 1 it is an indexed Job, a pod for each cell: an index that failed for good does not take the
    others with it (``backoffLimitPerIndex`` and ``FailIndex``: Kubernetes 1.29 or newer; stable since 1.33).
    """
    final = {"containerName": "runner", "operator": "In", "values": list(FINAL)}
    disrupted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    at_once = int(job.settings["parallel"])
    if at_once == 1:
        return {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": RESTARTS,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": final}, disrupted]},
        }
    return {
        "completionMode": "Indexed",
        "completions": cells,
        "parallelism": min(at_once, cells),
        "backoffLimitPerIndex": RESTARTS,
        "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": final}, disrupted]},
    }


def job_name(folder: str) -> str:
    """Return a name that Kubernetes allows, the same for the same directory and another for any other.

    Lower case letters, digits and dashes; with the index of its last pod, which becomes a host name, at most 63. The
    hash tells directories apart whose last part is the same: without it the second would replace the first.
    """
    text = re.sub(r"[^a-z0-9]+", "-", folder.rstrip("/").rpartition("/")[2].lower()).strip("-")
    digest = hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    room = LONGEST_NAME - len("rgt--" + digest) - len("-%d" % MOST_PODS)
    return "rgt-%s-%s" % ((text or "job")[:room].rstrip("-"), digest)


def yaml(value: Any, indent: str = "") -> list[str]:
    """Return the lines of a value; strings are quoted as in JSON, which every YAML reader takes."""
    rows: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            nested = isinstance(item, (dict, list)) and bool(item)
            rows += [indent + key + ":" + ("" if nested else " " + json.dumps(item))]
            rows += yaml(item, indent + "  ") if nested else []
        return rows
    for item in value:
        if isinstance(item, dict) and item:
            first, *rest = yaml(item, indent + "  ")
            rows += [indent + "- " + first.lstrip(" ")] + rest
        else:
            rows.append(indent + "- " + json.dumps(item))
    return rows
