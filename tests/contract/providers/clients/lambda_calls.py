"""Calls a server with the client that is generated from Lambda's OpenAPI file, and prints a JSON line for each call."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from lambda_ai_cloud_api_client import models
from lambda_ai_cloud_api_client.api.filesystems import list_filesystems
from lambda_ai_cloud_api_client.api.images import list_images
from lambda_ai_cloud_api_client.api.instances import (
    get_instance,
    launch_instance,
    list_instance_types,
    list_instances,
    restart_instance,
    terminate_instance,
)
from lambda_ai_cloud_api_client.api.ssh_keys import add_ssh_key, list_ssh_keys
from lambda_ai_cloud_api_client.client import AuthenticatedClient

BASE, KEY = sys.argv[1:3]
ONE = "0920582c7ff041399e34823a0be62549"
CLIENT = AuthenticatedClient(base_url=BASE, token=KEY, raise_on_unexpected_status=True)
LAUNCH = models.InstanceLaunchRequest(
    region_name=models.PublicRegionCode("us-west-1"),
    instance_type_name="gpu_1x_a10",
    ssh_key_names=["laptop"],
    file_system_names=[],
    name="made",
)
NEW_KEY = models.AddSSHKeyRequest(name="desk", public_key="ssh-ed25519 CCCC desk")
CALLS: dict[str, Callable[[], Any]] = {
    "list instances": lambda: list_instances.sync_detailed(client=CLIENT),
    "get instance": lambda: get_instance.sync_detailed(ONE, client=CLIENT),
    "list instance types": lambda: list_instance_types.sync_detailed(client=CLIENT),
    "list file systems": lambda: list_filesystems.sync_detailed(client=CLIENT),
    "list keys": lambda: list_ssh_keys.sync_detailed(client=CLIENT),
    "add key": lambda: add_ssh_key.sync_detailed(client=CLIENT, body=NEW_KEY),
    "list images": lambda: list_images.sync_detailed(client=CLIENT),
    "launch instance": lambda: launch_instance.sync_detailed(client=CLIENT, body=LAUNCH),
    "restart instance": lambda: restart_instance.sync_detailed(
        client=CLIENT, body=models.InstanceRestartRequest(instance_ids=[ONE])
    ),
    "terminate instance": lambda: terminate_instance.sync_detailed(
        client=CLIENT, body=models.InstanceTerminateRequest(instance_ids=[ONE])
    ),
}

for name, call in CALLS.items():
    try:
        answer = call()
        found = answer.parsed
        error = None if answer.status_code == 200 else f"status {answer.status_code}: {found}"
    except Exception as problem:
        found, error = None, f"{type(problem).__name__}: {problem}"
    print(json.dumps({"call": name, "error": error, "found": bool(found)}))
