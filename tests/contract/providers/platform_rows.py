"""One row a platform for `test_every_platform`: its fake with machines, its calls, and where its answers are its own.

A new platform is one more `Row` in `ROWS`; after it, ``python -m tests.contract.providers.platform_rows`` writes the
table in docs/profiles.md anew.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt_tui.demo.platforms import (
    Ask,
    LocalAutodl,
    LocalDigitalOcean,
    LocalGpu,
    LocalLambda,
    LocalPaperspace,
    LocalRunPod,
    LocalSize,
    LocalTemplate,
    LocalVast,
)
from rgt_tui.model.renting import Wish
from tests.contract.providers.conftest import START
from tests.contract.providers.local_dstack import LocalDstack, LocalInstance

HOUR = 3600.0
VERBS = (
    *("list", "read", "leftovers", "balance", "spend", "offers", "find"),
    *("start", "park", "destroy", "create"),
)
MISSING = object()
"""Instead of a value: the key is not there."""


@dataclass(frozen=True)
class Row:
    """What the suite must know of a platform."""

    kind: str
    make: Callable[..., Any]
    """Returns the fake, not started, with two machines: `machine` runs, `resting` is parked."""
    machine: str
    on: Mapping[str, str]
    """Verb → start of ``METHOD /path`` of the call that tells it; a verb that is not here the platform has not."""
    truth: Callable[[Any, str], str]
    """Fake and id → ``on``, ``resting`` or ``gone``: what is really so."""
    machines_in: Callable[[Any], Sequence[dict[str, Any]]]
    """The machines in the JSON of an answer to list or read."""
    state: str
    """Key of the state in one of them."""
    price: tuple[str, ...]
    """Keys of the price of compute, the parts of a path joined by dots; all are edited at once."""
    subobjects: tuple[str, ...]
    """Keys of what may be null."""
    wish: Wish | None = None
    offer_price: tuple[str, ...] = ()
    """As `price`, in an offer."""
    offers_in: Callable[[Any], Sequence[dict[str, Any]]] = lambda _: ()
    resting: str | None = None
    """A parked machine; None = the platform parks nothing."""
    yes: bytes = b"{}"
    """What it answers to a call that it takes."""
    error: bytes = b'{"error": "busy"}'
    """What it says at status 200 when something is wrong, where it does so; else anything that is no success."""
    two_pages: Callable[[Any], None] | None = None
    """Adds machines until a list has two pages; None = the platform has no pages."""
    price_on: str | None = None
    """Start of ``METHOD /path`` of the call that tells the price; None = those of list and read."""
    before: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    """Verb → what must be so with the machine before it can be asked for."""
    differs: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(verb, what goes wrong) → what comes of it here, where that is not what comes of it elsewhere."""


def edited(rows: Callable[[Any], Sequence[dict[str, Any]]], **values: object) -> Callable[[object], object]:
    """Return what sets keys in all of some rows of an answer; dots in a key are written ``__``."""

    def change(data: object) -> object:
        changed = copy.deepcopy(data)
        for row in rows(changed):
            for path, value in values.items():
                *way, last = path.split("__")
                inner = row
                for step in way:
                    inner = inner[step]
                if last not in inner:
                    continue
                if value is MISSING:
                    del inner[last]
                else:
                    inner[last] = value(inner[last]) if callable(value) else value
        return changed

    return change


POD, PARKED = "k3v9q0x1fake01", "p0stopped2fake"


def runpod(**given: Any) -> LocalRunPod:
    server = LocalRunPod(**given)
    server.add_pod(POD, "train-a", created=START - HOUR)
    server.add_pod(PARKED, "old", created=START - HOUR, status="EXITED")
    server.add_volume("vol1", 50.0)
    server.add_gpu(LocalGpu("NVIDIA GeForce RTX 4090", "RTX 4090", stock={("SECURE", "LOCAL-1"): "HIGH"}))
    return server


def _pod_state(server: LocalRunPod, instance: str) -> str:
    words = {"RUNNING": "on", "EXITED": "resting", "TERMINATED": "gone"}
    return words[server.pods[instance].status]


def _pods(data: Any) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = data.get("pods", [data])
    return found


INSTANCE, STOPPED = 31415926, 27182818


def vast(**given: Any) -> LocalVast:
    server = LocalVast(**given)
    server.add_instance(INSTANCE, "train-a", created=START - HOUR)
    server.add_instance(STOPPED, "old", created=START - HOUR, actual="exited", intended="stopped")
    server.volumes[77] = 50.0
    server.asks[9001] = Ask(9001)
    return server


def _more_instances(server: LocalVast) -> None:
    for place in range(30):
        server.add_instance(40_000_000 + place, f"other-{place}")


def _instance_state(server: LocalVast, instance: str) -> str:
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


PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHRlc3R0ZXN0dGVzdHRlc3R0ZXN0dGVzdHRlc3R0ZXN0 me@here"
DROPLET, DARK = "510000001", "510000002"


def digitalocean(**given: Any) -> LocalDigitalOcean:
    server = LocalDigitalOcean(**given)
    size = LocalSize("gpu-h100x1-80gb", 3.39)
    server.add_droplet("train-a", size, created=START - HOUR)
    server.add_droplet("old", size, created=START - HOUR, status="off")
    server.sizes, server.owed = [size], "-41.20"
    server.lists["volumes"] = [{"id": "v1", "name": "data", "size_gigabytes": 100, "droplet_ids": []}]
    return server


def _more_droplets(server: LocalDigitalOcean) -> None:
    server.add_droplet("other", server.sizes[0])
    server.per_page = 2


def _droplet_state(server: LocalDigitalOcean, instance: str) -> str:
    found = server.droplets.get(int(instance))
    return "gone" if found is None else "resting" if found.status == "off" else "on"


def _droplets(data: Any) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = data.get("droplets") or ([data["droplet"]] if "droplet" in data else [])
    return found


MACHINE, SHUT = "psfake01abc", "psfake02off"


def paperspace(**given: Any) -> LocalPaperspace:
    server = LocalPaperspace(**given)
    server.add_machine(MACHINE, "train-a", created=START - HOUR)
    server.add_machine(SHUT, "old", created=START - HOUR, state="off")
    server.templates = [LocalTemplate("tfake1", "ML-in-a-Box", ("A4000", "A4000x2"))]
    server.capacity = {("A4000", "East Coast (NY2)")}
    server.lists["public-ips"] = [{"ip": "203.0.113.5", "region": "East Coast (NY2)"}]
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


def dstack(**given: Any) -> LocalDstack:
    server = LocalDstack(**given)
    server.add(LocalInstance("main", "lab", 0, below="k3v9q0x1fake01"))
    server.add(LocalInstance("main", "lab", 1, host="203.0.113.8"))
    server.volumes = [{"name": "data", "project_name": "main", "configuration": {"backend": "runpod"}}]
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
        wish=Wish(gpu="A10", disk_gb=40, public_key="ssh-ed25519 AAAA me@laptop"),
        offers_in=lambda data: [entry["instance_type"] for entry in data["data"].values()],
        offer_price=("price_cents_per_hour",),
        yes=b'{"data": {"terminated_instances": [{"id": "x", "status": "terminating"}]}}',
        error=b'{"error": {"code": "provider/busy", "message": "busy", "suggestion": ""}}',
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
        wish=Wish(gpu="H100", public_key=PUBLIC_KEY),
        offers_in=lambda data: data["sizes"],
        offer_price=("price_hourly",),
        error=b'{"id": "busy", "message": "try again"}',
        two_pages=_more_droplets,
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
        wish=Wish(gpu="A4000", disk_gb=40, public_key=PUBLIC_KEY),
        yes=b'{"event": {"state": "new"}, "data": {}}',
        error=b'{"code": "INTERNAL_SERVER_ERROR", "message": "busy"}',
        two_pages=_more_machines,
        differs={
            # The price is told only once the machine is there.
            ("offers", ""): "not free",
            ("offers", "nothing to be had"): "not free",
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
        wish=Wish(gpu="RTX 4090", disk_gb=40),
        offers_in=lambda data: data["gpus"],
        offer_price=("price",),
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
        wish=Wish(gpu="RTX 4090", disk_gb=40),
        offers_in=lambda data: data["offers"],
        offer_price=("dph_base",),
        yes=b'{"success": true}',
        error=b'{"success": false, "error": "busy", "msg": "try again"}',
        two_pages=_more_instances,
    ),
)

FAILED_READS = (
    *("an error at 200", "401", "429", "429 that says when", "500", "no answer", "cut short", "a redirect"),
)
FAILED_CALLS = {
    "401": "nothing done",
    "429": "nothing done",
    "429 that says when": "nothing done",
    "an error at 200": "nobody knows",
    "2xx, nothing done": "nobody knows",
    "500": "nobody knows",
    "no answer": "nobody knows",
    "500, done all the same": "done, by reading",
    "no answer, done all the same": "done, by reading",
    "2xx of no known shape, done": "done, by reading",
    "twice": "done, by reading",
}
SHAPES = {
    "": "told",
    "a state of no known name": "not known",
    "no price": "not free",
    "the price as text": "told",
    "null sub-objects": "not free",
}

OUTCOMES: dict[tuple[str, str], str] = {
    **{
        (verb, fault): "not known"
        for verb in ("list", "read", "leftovers", "balance", "spend", "offers", "find")
        for fault in FAILED_READS
    },
    **{(verb, fault): outcome for verb in ("list", "read") for fault, outcome in SHAPES.items()},
    ("list", "no second page"): "not known",
    ("read", "404, and no list"): "not known",
    ("read", "404, but in the list"): "not known",
    ("leftovers", ""): "told",
    ("balance", ""): "told",
    ("spend", ""): "told",
    ("offers", ""): "told",
    ("offers", "no price"): "not free",
    ("offers", "nothing to be had"): "none",
    ("find", ""): "none",
    ("start", ""): "requested",
    **{
        ("start", fault): outcome
        for fault, outcome in FAILED_CALLS.items()
        if outcome == "nothing done" or fault in ("500", "no answer", "no answer, done all the same")
    },
    ("start", "no answer, done all the same"): "nobody knows",
    **{(verb, fault): outcome for verb in ("park", "destroy") for fault, outcome in FAILED_CALLS.items()},
    ("park", ""): "done, by reading",
    ("destroy", ""): "done, by reading",
    ("create", ""): "made",
    ("create", "401"): "nothing made",
    ("create", "429"): "nothing made",
    ("create", "500, done all the same"): "found by its token",
    ("create", "no answer, done all the same"): "found by its token",
    ("create", "2xx of no known shape, done"): "found by its token",
    ("create", "500"): "nobody knows",
    ("create", "no answer"): "nobody knows",
}
"""(verb, what goes wrong) → what comes of it everywhere but where a row says otherwise; empty = nothing goes wrong."""


def expected(row: Row, verb: str) -> dict[str, str]:
    """Return what comes of each thing that can go wrong with a verb of a platform that has it."""
    found = {fault: outcome for (of, fault), outcome in OUTCOMES.items() if of == verb}
    if row.two_pages is None:
        found.pop("no second page", None)
    if "read" in row.on and row.on["read"] == row.on["list"]:
        found = {fault: outcome for fault, outcome in found.items() if not fault.startswith("404")}
    return {**found, **{fault: outcome for (of, fault), outcome in row.differs.items() if of == verb}}


def table() -> list[str]:
    """Return the lines of the table in docs/profiles.md."""
    kinds = [row.kind for row in ROWS]
    lines = [
        f"| verb | what goes wrong | what comes of it | {' | '.join(kinds)} |",
        f"|---|---|---|{'---|' * len(kinds)}",
    ]
    faults = dict.fromkeys((*OUTCOMES, *(key for row in ROWS for key in row.differs)))
    alike: dict[tuple[str, ...], list[str]] = {}
    for verb, fault in sorted(faults, key=lambda key: VERBS.index(key[0])):
        usual = OUTCOMES.get((verb, fault), "")
        cells = []
        for row in ROWS:
            here = expected(row, verb).get(fault) if verb in row.on else None
            cells.append("–" if here is None else "·" if here == usual else here)
        alike.setdefault((verb, usual, *cells), []).append(fault or "(nothing)")
    lines += [
        f"| {verb} | {'; '.join(what)} | {' | '.join((usual, *cells))} |"
        for (verb, usual, *cells), what in alike.items()
    ]
    return lines


def write(page: Path) -> None:
    """Put the table into the page, in the place of the one that begins alike."""
    text = page.read_text()
    begin = text.index("| verb | what goes wrong |")
    end = text.index("\n\n", begin)
    page.write_text(text[:begin] + "\n".join(table()) + text[end:])


if __name__ == "__main__":
    write(Path(__file__).parents[3] / "docs" / "profiles.md")
