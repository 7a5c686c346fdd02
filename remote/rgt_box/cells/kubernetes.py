"""A runner as a Kubernetes Job: the manifest is printed, applying it is for who has the rights."""

from __future__ import annotations

import json
import re

from rgt_box.cells.jobfile import Job
from rgt_box.cells.process import grace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FINAL = (1, 2, 3, 74)
"""Exit statuses of the runner that another pod would only repeat; all others (75, a signal, a lost node) go on."""

RESTARTS = 20


class Wrong(Exception):
    """An option makes no sense; the message says how."""


def manifest(job: Job, words: list[str], image: str, claims: list[str], gpus: int) -> str:
    """Return the Job as YAML.

    Args:
        job: The job; its directory must lie on one of the claims.
        words: The command line of the runner, as it is inside of the container.
        image: The container image.
        claims: ``NAME:/MOUNT`` of each persistent volume claim.
        gpus: How many GPUs to ask for.

    Raises:
        Wrong: for a claim that is not of that form.
    """
    pairs = [claim.partition(":") for claim in claims]
    for claim, (name, _, mount) in zip(claims, pairs):  # noqa: B905 (strict= needs Python 3.10)
        if not name or not mount.startswith("/"):
            raise Wrong("--claim %s: write NAME:/MOUNT" % claim)
    mounts = [mount.rstrip("/") for _, _, mount in pairs]
    if not any(job.folder == mount or job.folder.startswith(mount + "/") for mount in mounts):
        raise Wrong(
            "no --claim NAME:/MOUNT holds the job directory %s: the pod would not see it" % job.folder
        )
    container: dict[str, Any] = {
        "name": "runner",
        "image": image,
        "command": words,
        "volumeMounts": [{"name": name, "mountPath": mount} for name, _, mount in pairs],
    }
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    pod = {
        "restartPolicy": "Never",
        # A cell that is asked to stop has this long to save, and the runner needs a moment to write it down.
        "terminationGracePeriodSeconds": int(grace()) + 30,
        "containers": [container],
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name, _, _ in pairs],
    }
    spec = dict(fan_out(job), template={"spec": pod})
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job_name(job.folder)}, "spec": spec}
    return "# kubectl apply -f FILE\n" + "\n".join(yaml(body)) + "\n"


def fan_out(job: Job) -> dict[str, Any]:
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
    lines, _ = job.lines()
    return {
        "completionMode": "Indexed",
        "completions": len(lines),
        "parallelism": min(at_once, len(lines)),
        "backoffLimitPerIndex": RESTARTS,
        "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": final}, disrupted]},
    }


def job_name(folder: str) -> str:
    """Return a name that Kubernetes allows: lower case letters, digits and dashes, at most 63."""
    text = re.sub(r"[^a-z0-9]+", "-", folder.rstrip("/").rpartition("/")[2].lower()).strip("-")
    return ("rgt-" + (text or "job"))[:63].rstrip("-")


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
