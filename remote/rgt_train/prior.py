"""How often machines are expected to fail before a run has seen it itself.

A Gamma prior on the rate of failures, as if so many node hours had been watched and so many failures been seen. A run's
own ledger soon outweighs it. Being wrong by a factor of four adds a quarter to a waste that is a few percent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Mapping, Optional, Tuple


@dataclass(frozen=True)
class Prior:
    """What is assumed of one kind of machine.

    Attributes:
        hours: Mean hours between failures of one node.
        failures: How many imagined failures that is worth.
        why: In words.
    """

    hours: float
    failures: float
    why: str


PRIORS: Mapping[str, Prior] = {
    "spot": Prior(2.2, 1.0, "spot machines"),
    "session": Prior(8.0, 1.0, "a notebook session"),
    "batch": Prior(24.0, 1.0, "a batch system"),
    "rented": Prior(72.0, 1.0, "a rented machine"),
    "owned": Prior(1000.0, 1.0, "a machine of one's own"),
    "unknown": Prior(4.0, 1.0, "an unknown machine"),
}
"""``spot``: mean up-time of one-GPU machines in four zones of one cloud, 1.4 to 3.2 h (public spot traces). ``owned``:
one unexpected end per 6,300 node hours was told of a large training (419 in 54 days on 2,048 nodes), and one's own is
less well kept. The others are judgements: session and time limits of the platforms, evictions that they announce."""

_SIGNS: Tuple[Tuple[str, str], ...] = (
    ("KAGGLE_KERNEL_RUN_TYPE", "session"),
    ("COLAB_RELEASE_TAG", "session"),
    ("SLURM_JOB_ID", "batch"),
    ("KUBERNETES_SERVICE_HOST", "batch"),
    ("RUNPOD_POD_ID", "rented"),
    ("VAST_CONTAINERLABEL", "rented"),
    ("AutoDLContainerUUID", "rented"),
)
"""Variable that a platform sets → kind. Whether a rented machine is interruptible cannot be seen from inside."""


def prior_of(platform: str = "", environment: Optional[Mapping[str, str]] = None) -> Prior:
    """Return the prior of a platform.

    Args:
        platform: A key of `PRIORS`; empty looks at the environment.
        environment: Variables of the process.

    Raises:
        ValueError: No such platform.
    """
    if platform:
        if platform not in PRIORS:
            raise ValueError(f"platform is {platform!r}; known are {', '.join(PRIORS)}")
        return PRIORS[platform]
    variables = os.environ if environment is None else environment
    kind = next((kind for name, kind in _SIGNS if variables.get(name)), "unknown")
    return PRIORS[kind]
