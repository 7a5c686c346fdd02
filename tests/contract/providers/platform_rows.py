"""One row a platform for `test_every_platform`: its fake with machines, its calls, and where its answers are its own.

A new platform is one more `Row` in `ROWS`; after it, ``python -m tests.contract.providers.platform_rows`` writes the
table in docs/profiles.md anew. Those that are asked by commands stand in `rows_by_command`, those that nothing tells of
in `rows_by_hand`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rgt_tui.demo import LocalAutodl
from rgt_tui.model import RentalRequest
from tests.contract.providers.conftest import START
from tests.contract.providers.fakes.local_digitalocean import LocalDigitalOcean, LocalSize
from tests.contract.providers.fakes.local_dstack import LocalDstack, LocalInstance
from tests.contract.providers.fakes.local_lambda import LocalLambda
from tests.contract.providers.fakes.local_paperspace import LocalPaperspace, LocalTemplate
from tests.contract.providers.fakes.local_skypilot import LocalCluster, LocalSkyPilot
from tests.contract.providers.fakes.renting_runpod import LocalGpu, RentingRunPod
from tests.contract.providers.fakes.renting_vast import LocalAsk, RentingVast
from tests.contract.providers.platform_outcomes import Edit, Row, table
from tests.contract.providers.rows_by_command import BY_COMMAND, BY_HAND
from tests.contract.providers.rows_by_hand import BY_HAND_ROWS

HOUR = 3600.0
HTTP: Mapping[str | tuple[str, str], str] = {
    "no end": "the time-out makes it *no answer*",
    "done by hand": BY_HAND,
}
NO_PAGES = "its list has no pages"
NO_ONE = "one machine is read from the list"
NO_BALANCE = "no call tells the balance"
NO_BOOKS = "no call tells what a machine has cost"
NO_MARKET: Mapping[str | tuple[str, str], str] = dict.fromkeys(
    ("offers", "find", "create"), "rgt rents nothing there"
)
READ_ONE: Mapping[str | tuple[str, str], str] = {
    "404, and no list": NO_ONE,
    "404, but in the list": NO_ONE,
}


POD, PARKED = "k3v9q0x1fake01", "p0stopped2fake"


def runpod(**given: Any) -> RentingRunPod:
    server = RentingRunPod(**given)
    server.add_pod(POD, "train-a", created=START - HOUR)
    server.add_pod(PARKED, "old", created=START - HOUR, status="EXITED")
    server.add_volume("vol1", 50.0)
    server.add_gpu(
        LocalGpu("NVIDIA GeForce RTX 4090", "RTX 4090", stock={("SECURE", "LOCAL-1"): "HIGH"})
    )
    return server


def _pod_state(server: RentingRunPod, instance: str) -> str:
    words = {"RUNNING": "on", "EXITED": "resting", "TERMINATED": "gone"}
    return words[server.pods[instance].status]


def _more_pods(server: RentingRunPod) -> None:
    server.add_pod("podmore", "other")
    server.page_size = 2


def _pods(data: Any) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = data.get("pods", [data])
    return found


INSTANCE, STOPPED = 31415926, 27182818


def vast(**given: Any) -> RentingVast:
    server = RentingVast(**given)
    server.add_instance(INSTANCE, "train-a", created=START - HOUR)
    server.add_instance(STOPPED, "old", created=START - HOUR, actual="exited", intended="stopped")
    server.volumes[77] = 50.0
    server.asks[9001] = LocalAsk(9001)
    return server


def _more_instances(server: RentingVast) -> None:
    for place in range(30):
        server.add_instance(40_000_000 + place, f"other-{place}")


def _instance_state(server: RentingVast, instance: str) -> str:
    found = server.instances.get(int(instance))
    return "gone" if found is None else "resting" if found.actual in ("exited", "stopped") else "on"


def _instances(data: Any) -> Sequence[dict[str, Any]]:
    found: Any = data["instances"]
    return found if isinstance(found, list) else [found]


PRO, OFF = "pro-0fake123", "pro-1fake456"


def autodl(**given: Any) -> LocalAutodl:
    server = LocalAutodl(**given)
    server.add_container(PRO, "train-a", created=START - HOUR)
    server.add_container(OFF, "old", created=START - HOUR, status="shutdown")
    return server


def _more_containers(server: LocalAutodl) -> None:
    for place in range(60):
        server.add_container(f"pro-more{place}", f"other-{place}", status="shutdown")


def _switched_off(server: LocalAutodl) -> None:
    """Only what is switched off can be released."""
    server.containers[PRO].status = "shutdown"


def _container_state(server: LocalAutodl, instance: str) -> str:
    found = server.containers.get(instance)
    return "gone" if found is None else "resting" if found.status == "shutdown" else "on"


def _containers(data: Any) -> Sequence[dict[str, Any]]:
    found: Any = data["data"]
    rows: Sequence[dict[str, Any]] = found.get("list", [found])
    return rows


LAMBDA = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


def lambda_cloud(**given: Any) -> LocalLambda:
    server = LocalLambda(**given)
    server.add_machine(LAMBDA, "train-a")
    server.filesystems["shared-fs"] = 50 << 30
    server.types["gpu_1x_a10"] = (75, ("us-west-1", "us-east-1"))
    return server


def _lambda_state(server: LocalLambda, instance: str) -> str:
    found = server.machines.get(instance)
    return "gone" if found is None or found.status == "terminated" else "on"


def _lambda_machines(data: Any) -> Sequence[dict[str, Any]]:
    found = data["data"]
    return found if isinstance(found, list) else [found]


PUBLIC_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHRlc3R0ZXN0dGVzdHRlc3R0ZXN0dGVzdHRlc3R0ZXN0 me@here"
)
DROPLET, DARK = "510000001", "510000002"


def digitalocean(**given: Any) -> LocalDigitalOcean:
    server = LocalDigitalOcean(**given)
    size = LocalSize("gpu-h100x1-80gb", 3.39)
    server.add_droplet("train-a", size, created=START - HOUR)
    server.add_droplet("old", size, created=START - HOUR, status="off")
    server.sizes, server.owed = [size], "-41.20"
    server.lists["volumes"] = [
        {"id": "v1", "name": "data", "size_gigabytes": 100, "droplet_ids": []}
    ]
    return server


def _more_droplets(server: LocalDigitalOcean) -> None:
    server.add_droplet("other", server.sizes[0])
    server.per_page = 2


def _droplet_state(server: LocalDigitalOcean, instance: str) -> str:
    found = server.droplets.get(int(instance))
    return "gone" if found is None else "resting" if found.status == "off" else "on"


def _droplets(data: Any) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = data.get("droplets") or (
        [data["droplet"]] if "droplet" in data else []
    )
    return found


MACHINE, SHUT = "psfake01abc", "psfake02off"


def paperspace(**given: Any) -> LocalPaperspace:
    server = LocalPaperspace(**given)
    server.add_machine(MACHINE, "train-a", created=START - HOUR)
    server.add_machine(SHUT, "old", created=START - HOUR, state="off")
    server.templates = [LocalTemplate("tfake1", "ML-in-a-Box", ("A4000", "A4000x2"))]
    server.capacity = {("A4000", "East Coast (NY2)")}
    server.lists["public-ips"] = [
        {"ip": "203.0.113.5", "region": "East Coast (NY2)", "dtCreated": "2026-01-01T00:00:00.000Z"}
    ]
    return server


def _more_machines(server: LocalPaperspace) -> None:
    server.add_machine("psfake03more", "other")
    server.limit = 2


def _machine_state(server: LocalPaperspace, instance: str) -> str:
    found = server.machines.get(instance)
    return "gone" if found is None else "resting" if found.state == "off" else "on"


def _machines(data: Any) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = data.get("items") or ([data] if "state" in data else [])
    return found


IDLE = "main/lab/0"


def skypilot(**given: Any) -> LocalSkyPilot:
    server = LocalSkyPilot(**given)
    server.add(LocalCluster("train-a"), LocalCluster("old", "STOPPED"))
    return server


def _cluster_state(server: LocalSkyPilot, instance: str) -> str:
    found = server.clusters.get(instance)
    return "gone" if found is None else "resting" if found.status == "STOPPED" else "on"


def _of_result(edit: Edit) -> Edit:
    """What came of a request stands as JSON in a text of the answer."""
    return lambda data: {**data, "return_value": json.dumps(edit(json.loads(data["return_value"])))}


def _failed(data: Any) -> object:
    """Say that the request failed, if it was the one for the status."""
    return {**data, "status": "FAILED"} if data["name"] == "sky.status" else data


GET = "GET /api/get"


def dstack(**given: Any) -> LocalDstack:
    server = LocalDstack(**given)
    server.add(LocalInstance("main", "lab", 0, below="k3v9q0x1fake01"))
    server.add(LocalInstance("main", "lab", 1, host="203.0.113.8"))
    server.volumes = [
        {"name": "data", "project_name": "main", "configuration": {"backend": "runpod"}}
    ]
    return server


def _dstack_state(server: LocalDstack, instance: str) -> str:
    return "gone" if server.instances[instance].status == "terminated" else "on"


PRO_API = "/api/v1/dev/instance/pro"

ROWS = (
    Row(
        kind="autodl",
        make=autodl,
        machine=PRO,
        resting=OFF,
        on={
            "list": f"POST {PRO_API}/list",
            "read": f"POST {PRO_API}/list",
            "balance": "POST /api/v1/dev/wallet/balance",
            "start": f"POST {PRO_API}/power_on",
            "park": f"POST {PRO_API}/power_off",
            "destroy": f"POST {PRO_API}/release",
        },
        truth=_container_state,
        machines_in=_containers,
        state="status",
        price=("payg_price",),
        price_on=f"GET {PRO_API}/snapshot",
        subobjects=("started_at", "expired_at", "charge_type", "region_name", "req_gpu_amount"),
        yes=b'{"code": "Success", "msg": "", "data": null}',
        error=b'{"code": "InternalError", "msg": "busy", "data": null}',
        two_pages=_more_containers,
        before={"destroy": _switched_off},
        differs={
            (verb, fault): "nobody knows"  # It documents neither a status nor a code for it.
            for verb in ("park", "destroy")
            for fault in ("429", "429 that says when")
        },
        lacks={**HTTP, **NO_MARKET, **READ_ONE, "leftovers": "no call tells it", "spend": NO_BOOKS},
    ),
    Row(
        kind="lambda",
        make=lambda_cloud,
        machine=LAMBDA,
        on={
            "list": "GET /api/v1/instances",
            "read": f"GET /api/v1/instances/{LAMBDA}",
            "leftovers": "GET /api/v1/file-systems",
            "offers": "GET /api/v1/instance-types",
            "find": "GET /api/v1/instances",
            "destroy": "POST /api/v1/instance-operations/terminate",
            "create": "POST /api/v1/instance-operations/launch",
        },
        truth=_lambda_state,
        machines_in=_lambda_machines,
        state="status",
        price=("instance_type.price_cents_per_hour",),
        subobjects=("instance_type", "region", "actions", "file_system_names", "ip"),
        wish=RentalRequest(gpu="A10", disk_gb=40, public_key="ssh-ed25519 AAAA me@laptop"),
        offers_in=lambda data: [entry["instance_type"] for entry in data["data"].values()],
        offer_price=("price_cents_per_hour",),
        yes=b'{"data": {"terminated_instances": [{"id": "x", "status": "terminating"}]}}',
        error=b'{"error": {"code": "provider/busy", "message": "busy", "suggestion": ""}}',
        lacks={
            **HTTP,
            "no second page": NO_PAGES,
            "balance": NO_BALANCE,
            "spend": NO_BOOKS,
            "start": "Lambda parks nothing",
            "park": "Lambda parks nothing",
        },
    ),
    Row(
        kind="digitalocean",
        make=digitalocean,
        machine=DROPLET,
        resting=DARK,
        on={
            "list": "GET /v2/droplets",
            "read": f"GET /v2/droplets/{DROPLET}",
            "leftovers": "GET /v2/volumes",
            "balance": "GET /v2/customers/my/balance",
            "offers": "GET /v2/sizes",
            "find": "GET /v2/droplets",
            "start": f"POST /v2/droplets/{DARK}/actions",
            "destroy": f"DELETE /v2/droplets/{DROPLET}",
            "create": "POST /v2/droplets",
        },
        truth=_droplet_state,
        machines_in=_droplets,
        state="status",
        price=("size.price_hourly",),
        subobjects=("networks", "gpu_info", "region", "size", "features", "volume_ids"),
        wish=RentalRequest(gpu="H100", public_key=PUBLIC_KEY),
        offers_in=lambda data: data["sizes"],
        offer_price=("price_hourly",),
        error=b'{"id": "busy", "message": "try again"}',
        two_pages=_more_droplets,
        lacks={**HTTP, "spend": NO_BOOKS, "park": "a droplet that is off bills on"},
    ),
    Row(
        kind="dstack",
        make=dstack,
        machine=IDLE,
        on={
            "list": "POST /api/instances/list",
            "read": "POST /api/instances/list",
            "leftovers": "POST /api/volumes/list",
            "destroy": "POST /api/project/main/fleets/delete_instances",
        },
        truth=_dstack_state,
        machines_in=lambda data: data,
        state="status",
        price=("price",),
        subobjects=("instance_type", "hostname", "region", "backend"),
        yes=b"null",
        error=b'{"detail": [{"msg": "busy", "code": "error"}]}',
        differs={
            # Its price is a number of the instance itself.
            ("list", "null sub-objects"): "told",
            ("read", "null sub-objects"): "told",
        },
        lacks={
            **HTTP,
            **NO_MARKET,
            **READ_ONE,
            "no second page": NO_PAGES,
            "balance": NO_BALANCE,
            "spend": NO_BOOKS,
            "start": "dstack parks nothing",
            "park": "dstack parks nothing",
        },
    ),
    Row(
        kind="paperspace-core",
        make=paperspace,
        machine=MACHINE,
        resting=SHUT,
        on={
            "list": "GET /machines",
            "read": f"GET /machines/{MACHINE}",
            "leftovers": "GET /public-ips",
            "offers": "GET /os-templates",
            "find": "GET /machines",
            "start": f"PATCH /machines/{SHUT}/start",
            "park": f"PATCH /machines/{MACHINE}/stop",
            "destroy": f"DELETE /machines/{MACHINE}",
            "create": "POST /machines",
        },
        truth=_machine_state,
        machines_in=_machines,
        state="state",
        price=("usageRate",),
        subobjects=("accelerators", "publicIp", "publicIpType", "storageRate"),
        wish=RentalRequest(gpu="A4000", disk_gb=40, public_key=PUBLIC_KEY),
        yes=b'{"event": {"state": "new"}, "data": {}}',
        error=b'{"code": "INTERNAL_SERVER_ERROR", "message": "busy"}',
        two_pages=_more_machines,
        differs={
            # The price is told only once the machine is there.
            ("offers", ""): "not free",
            ("offers", "nothing to be had"): "not free",
        },
        lacks={
            **HTTP,
            "balance": NO_BALANCE,
            "spend": NO_BOOKS,
            ("offers", "no price"): "its list of offers tells no prices",
        },
    ),
    Row(
        kind="runpod",
        make=runpod,
        machine=POD,
        resting=PARKED,
        on={
            "list": "GET /v2/pods",
            "read": f"GET /v2/pods/{POD}",
            "leftovers": "GET /v2/network-volumes",
            "spend": "GET /v2/billing/pods",
            "offers": "GET /v2/catalog/gpus",
            "find": "GET /v2/pods",
            "start": f"POST /v2/pods/{PARKED}/action",
            "park": f"POST /v2/pods/{POD}/action",
            "destroy": f"DELETE /v2/pods/{POD}",
            "create": "POST /v2/pods",
        },
        truth=_pod_state,
        machines_in=_pods,
        state="status",
        price=("cost",),
        subobjects=("mounts", "ssh", "runtime", "gpu"),
        wish=RentalRequest(gpu="RTX 4090", disk_gb=40),
        offers_in=lambda data: data["gpus"],
        offer_price=("price",),
        two_pages=_more_pods,
        lacks={**HTTP, "balance": NO_BALANCE},
    ),
    Row(
        kind="vastai",
        make=vast,
        machine=str(INSTANCE),
        resting=str(STOPPED),
        on={
            "list": "GET /api/v1/instances/",
            "read": f"GET /api/v0/instances/{INSTANCE}/",
            "leftovers": "GET /api/v0/volumes/",
            "balance": "GET /api/v0/users/current/",
            "spend": "GET /api/v0/charges/",
            "offers": "POST /api/v0/bundles/",
            "find": "GET /api/v1/instances/",
            "start": f"PUT /api/v0/instances/{STOPPED}/",
            "park": f"PUT /api/v0/instances/{INSTANCE}/",
            "destroy": f"DELETE /api/v0/instances/{INSTANCE}/",
            "create": "PUT /api/v0/asks/",
        },
        truth=_instance_state,
        machines_in=_instances,
        state="actual_status",
        price=("dph_base", "dph_total"),
        subobjects=("ports", "volume_info", "public_ipaddr", "storage_total_cost", "disk_space"),
        wish=RentalRequest(gpu="RTX 4090", disk_gb=40),
        offers_in=lambda data: data["offers"],
        offer_price=("dph_base",),
        yes=b'{"success": true}',
        error=b'{"success": false, "error": "busy", "msg": "try again"}',
        two_pages=_more_instances,
        lacks={**HTTP},
    ),
    Row(
        kind="skypilot",
        make=skypilot,
        machine="train-a",
        resting="old",
        on={
            "list": "POST /status",
            "read": "POST /status",
            "start": "POST /start",
            "park": "POST /stop",
            "destroy": "POST /down",
        },
        truth=_cluster_state,
        machines_in=lambda rows: rows,
        within=_of_result,
        shown_on=GET,
        state="status",
        price=("total_cost",),
        price_on=GET,
        subobjects=("cloud", "region", "accelerators", "launched_at", "nodes"),
        yes=b"null",
        error=b'{"detail": "busy"}',
        breaks={
            # The request is taken, and what came of it is told by another call.
            **{
                (verb, "an error at 200"): {"on": GET, "change": _failed, "times": -1}
                for verb in ("list", "read")
            },
            **{
                (verb, "cut short"): {"on": GET, "cut": 9, "times": -1} for verb in ("list", "read")
            },
        },
        lacks={
            **HTTP,
            **NO_MARKET,
            **READ_ONE,
            "no second page": NO_PAGES,
            ("read", "no price"): "only the list brings the price along",
            ("read", "the price as text"): "only the list brings the price along",
            "leftovers": "no call tells it",
            "balance": NO_BALANCE,
            "spend": NO_BOOKS,
        },
        differs={
            # Its price comes from a report of its own, and is remembered.
            ("list", "no price"): "told",
            ("list", "null sub-objects"): "told",
            ("read", "null sub-objects"): "told",
        },
    ),
    *BY_COMMAND,
    *BY_HAND_ROWS,
)


def write(page: Path) -> None:
    """Put the table with its reasons into the page, in the place of the one that begins alike."""
    text = page.read_text()
    begin = text.index("| verb | what goes wrong |")
    end = text.index("\n\n## ", begin)
    page.write_text(text[:begin] + "\n".join(table(ROWS)) + text[end:])


if __name__ == "__main__":
    write(Path(__file__).parents[3] / "docs" / "profiles.md")
