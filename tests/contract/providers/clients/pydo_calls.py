"""Calls a server with DigitalOcean's own client (pydo) and prints a JSON line for each call.

The client checks no answer; its docstrings, generated from the vendor's OpenAPI file, say which fields are required.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import azure.core.pipeline.policies._authentication as authentication
from pydo import Client

BASE, KEY = sys.argv[1:3]
# The client refuses to send a key without TLS; here it goes to the loopback.
authentication._enforce_https = lambda request: None
DO = Client(token=KEY, endpoint=BASE)
PUBLIC_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKjmkM0Y8m9QGyiEXjKq7Fv0JHqXbK0Vt0j1v8pFpOlA laptop"
)
FIELD = re.compile(r'( *)"([a-z_0-9]+)": ?(.*)')


def required_fields(method: Callable[..., object]) -> set[tuple[str, ...]]:
    """Return the paths of the fields that the docstring of a method calls required in its answer."""
    text = (method.__doc__ or "").partition("# response body for status code(s): 20")[2]
    text = text.partition("# response body for status code(s): 4")[0]
    stack: list[tuple[int, str]] = []
    required: set[tuple[str, ...]] = set()
    for line in text.splitlines():
        field = FIELD.match(line)
        if field is not None:
            indent = len(field[1])
            stack = [item for item in stack if item[0] < indent] + [(indent, field[2])]
        path = tuple(name for _, name in stack)
        if "Required" in line and "Optional" not in line and path:
            required.add(path)
    return required


def missing_fields(
    data: Any, required: set[tuple[str, ...]], path: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the required fields that the objects of an answer lack."""
    if isinstance(data, list):
        for item in data:
            yield from missing_fields(item, required, path)
    if isinstance(data, dict):
        for field in required:
            if field[:-1] == path and field[-1] not in data:
                yield ".".join(field)
        for name, value in data.items():
            yield from missing_fields(value, required, (*path, name))


def check(method: Callable[..., Any], *arguments: object, **options: object) -> object:
    """Call a method and insist on the required fields of its answer."""
    answer = method(*arguments, **options)
    if isinstance(answer, dict) and isinstance(answer.get("id"), str) and "message" in answer:
        raise ValueError(f"an error: {answer}")
    missing = sorted(set(missing_fields(answer, required_fields(method))))
    if missing:
        raise ValueError(f"fields are missing: {', '.join(missing)}")
    return answer


def droplet() -> int:
    """Return the id of the one GPU droplet."""
    return int(DO.droplets.list(type="gpus")["droplets"][0]["id"])


def key() -> str:
    """Return the fingerprint of the one key."""
    return str(DO.ssh_keys.list()["ssh_keys"][0]["fingerprint"])


CREATION: dict[str, Any] = {
    "name": "made",
    "size": "gpu-h100x1-80gb",
    "image": "gpu-h100x1-base",
    "region": "nyc2",
}
CALLS: dict[str, Callable[[], object]] = {
    "create key": lambda: check(
        DO.ssh_keys.create, body={"name": "laptop", "public_key": PUBLIC_KEY}
    ),
    "list keys": lambda: check(DO.ssh_keys.list),
    "get key": lambda: check(DO.ssh_keys.get, key()),
    "list droplets": lambda: check(DO.droplets.list, type="gpus"),
    "get droplet": lambda: check(DO.droplets.get, droplet()),
    "list sizes": lambda: check(DO.sizes.list),
    "list volumes": lambda: check(DO.volumes.list),
    "list snapshots": lambda: check(DO.snapshots.list),
    "list reserved addresses": lambda: check(DO.reserved_ips.list),
    "list clusters": lambda: check(DO.kubernetes.list_clusters),
    "get balance": lambda: check(DO.balance.get),
    "list associated resources": lambda: check(DO.droplets.list_associated_resources, droplet()),
    "power off": lambda: check(DO.droplet_actions.post, droplet(), body={"type": "power_off"}),
    "power on": lambda: check(DO.droplet_actions.post, droplet(), body={"type": "power_on"}),
    "create droplet": lambda: check(DO.droplets.create, body={**CREATION, "ssh_keys": [key()]}),
    "destroy droplet": lambda: DO.droplets.destroy(droplet()) or True,
}

for name, call in CALLS.items():
    try:
        found, error = call(), None
    except Exception as problem:
        found, error = None, f"{type(problem).__name__}: {problem}"
    print(json.dumps({"call": name, "error": error, "found": bool(found)}))
