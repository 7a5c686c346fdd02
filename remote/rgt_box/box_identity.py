"""What the box calls itself, as its platform has told it: names for the instance, never a secret, never by the network.

The first process of a container was started by the platform, so its environment counts before that of this process,
which start-up files on a disk that was carried over from another instance may have set.
"""

from __future__ import annotations

import os
import re

from rgt_box import procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

NAMES = (
    "RUNPOD_POD_ID",  # docs.runpod.io/pods/templates/environment-variables, 2026-11
    "CONTAINER_ID",  # vast.ai: docs.vast.ai/guides/instances/docker-environment, 2026-11
    "VAST_CONTAINERLABEL",  # the same page: "C." and the id
    "FEATURIZE_INSTANCE_ID",  # PyPI featurize 0.0.27, 2026-11
    "SLURM_JOB_ID",  # sbatch(1), "OUTPUT ENVIRONMENT VARIABLES"
)
"""Variables that hold the id of the instance, and where that is said. All others are none of our business."""
VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}")
"""What an id may look like; anything else says nothing."""
POD = re.compile(r"(?:/pods/|pod)([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?=[/.\s]|$)")
"""The UID of a Kubernetes pod, as the kubelet's directories and control groups name it."""
JOB = re.compile(r"/slurm\S*/job_(\d{1,18})(?=[/\s]|$)")
"""A job in a control group of Slurm's daemon."""
FIRST, GROUPS, MOUNTS = "/proc/1/environ", "/proc/self/cgroup", "/proc/self/mountinfo"


def box_identity(
    own: Mapping[str, str] | None = None, files: Mapping[str, bytes] | None = None
) -> dict[str, str]:
    """Return name → value of all that says which instance this is.

    What a daemon has written (control groups, mounts) counts before the environment of the first process, and that
    before our own.

    Args:
        own: Environment of this process; None = as it is.
        files: Path → content, in place of the real files.
    """

    def read(path: str) -> bytes:
        return (procstat.read_whole(path) if files is None else files.get(path)) or b""

    found: dict[str, str] = {}
    for environment in (os.environ if own is None else own, _parsed(read(FIRST))):
        for name in NAMES:
            value = environment.get(name, "")
            if VALUE.fullmatch(value):
                found[name] = value
    groups = read(GROUPS).decode("utf-8", "replace")
    told = {
        "SLURM_JOB_ID": _only(JOB.findall(groups)),
        "pod_uid": _only(POD.findall(groups)) or _only(_pods(read(MOUNTS).decode("utf-8", "replace"))),
    }
    found.update({name: value for name, value in told.items() if value is not None})
    return found


def _pods(table: str) -> list[str]:
    """Return the pods whose directories are shown here under other names, as the kubelet does inside of a pod.

    On a node itself they stand under their own.
    """
    rows = [row.split(" ") for row in table.splitlines()]
    return [pod for row in rows if len(row) > 4 and "/pods/" not in row[4] for pod in POD.findall(row[3])]


def _only(values: list[str]) -> str | None:
    """Return the one value that all of them are; several tell nothing."""
    different = {value.replace("_", "-") for value in values}
    return different.pop() if len(different) == 1 else None


def _parsed(block: bytes) -> dict[str, str]:
    found = {}
    for item in block.split(b"\0"):
        name, sign, value = item.partition(b"=")
        if sign:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found
