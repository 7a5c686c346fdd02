"""The key `kubectl` of a box in the fleet file: its checks, and the keys that follow from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

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


KUBECTL: dict[str, Callable[[Any], str | None]] = {
    "context": _find_context_problem,
    "namespace": _find_name_problem,
    "pod": _find_name_problem,
    "selector": _find_selector_problem,
    "job": _find_name_problem,
    "container": _find_name_problem,
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
