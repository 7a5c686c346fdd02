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
POD = re.compile(
    r"(?:/pods/|pod)([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})(?=[/.\s]|$)"
)
"""The UID of a Kubernetes pod, as the kubelet's directories and control groups name it."""
JOB = re.compile(r"/slurm[^\s]*/job_(\d{1,18})(?=[/\s]|$)")
"""A job in a control group of Slurm's daemon."""
FILES = (
    ("pod_uid", "/proc/self/mountinfo", POD),
    ("pod_uid", "/proc/self/cgroup", POD),
    ("SLURM_JOB_ID", "/proc/self/cgroup", JOB),
)
"""Name → file → what in it is the value. The control group is a daemon's word and counts before any variable."""


def box_identity(
    own: Mapping[str, str] | None = None, first: bytes | None = None, files: Mapping[str, bytes] | None = None
) -> dict[str, str]:
    """Return name → value of all that says which instance this is.

    Args:
        own: Environment of this process; None = as it is.
        first: That of the first process, as ``/proc/1/environ`` has it; None = read it.
        files: Path → content, in place of the real files.
    """
    texts = [os.environ if own is None else own]
    texts.append(_parsed(procstat.read_bytes("/proc/1/environ", 1 << 20) or b"" if first is None else first))
    found: dict[str, str] = {}
    for environment in texts:
        for name in NAMES:
            value = environment.get(name, "")
            if VALUE.fullmatch(value):
                found[name] = value
    named = set()
    for name, path, pattern in FILES:
        content = procstat.read_bytes(path, 1 << 20) if files is None else files.get(path)
        match = pattern.search((content or b"").decode("utf-8", "replace"))
        if match and name not in named:
            named.add(name)
            found[name] = match.group(1).replace("_", "-")
    return found


def _parsed(block: bytes) -> dict[str, str]:
    found = {}
    for item in block.split(b"\0"):
        name, sign, value = item.partition(b"=")
        if sign:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found
