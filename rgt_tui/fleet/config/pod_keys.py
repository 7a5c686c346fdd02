"""The key `kubectl` of a box in the fleet file: its checks, and the keys that follow from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from rgt_wire.kubernetes_job import WrongManifest, pod_body

from rgt_tui.model import KubectlRoute


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


KUBECTL: dict[str, Callable[[Any], str | None]] = {
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
SSH_KEYS = ("host", "port", "user", "identity", "known_hosts", "ssh_config", "tunnels")
"""Keys of a box that a pod cannot have."""


def implied_keys(route: KubectlRoute, table: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a box that follow from its pod: `host`, and `profile` and `provider` if not given."""
    more: dict[str, Any] = {"host": route.place_text, "profile": table.get("profile", "kubernetes")}
    instance = route.instance_id
    if "provider" not in table and instance is not None and more["profile"] == "kubernetes":
        more["provider"] = {"kind": "kubernetes", "instance": instance, "via": route.context}
    return more
