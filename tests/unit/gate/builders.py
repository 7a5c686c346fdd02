"""A quiet, finished box on a platform with one durable tier: what a test then spoils in one place."""

from __future__ import annotations

import msgspec

from rgt_tui.gate import gather
from rgt_tui.model.box import BoxSpec, BoxState, Link, ProviderRef
from rgt_tui.model.evidence import Evidence, Verb
from rgt_tui.model.money import Lifecycle, Meter, MeterKind
from rgt_tui.model.profile import BillingAction, Price, Profile, Tier
from rgt_tui.model.protocol import Cell, Disk, QueueState, Sample

NOW = 1_790_000_000.0

PROFILE = Profile(
    id="runpod",
    name="RunPod",
    kind="ssh-rental",
    confidence="from-docs",
    top_danger="-",
    detach="tmux",
    tiers=(
        Tier(
            "container-disk", ("/",), survives_stop=False, survives_destroy=False, bills_while_stopped=False
        ),
        Tier(
            "volume-disk",
            ("/workspace",),
            survives_stop=True,
            survives_destroy=False,
            bills_while_stopped=True,
            prices=(Price(0.20, "USD", "GB-month", "2026-08", "https://runpod.example", when="stopped"),),
        ),
        Tier(
            "network-volume", ("/net",), survives_stop=True, survives_destroy=True, bills_while_stopped=True
        ),
        Tier("odd", ("/odd",)),
    ),
    billing=(
        BillingAction(
            verb="stop",
            native_label="Stop",
            kind="park",
            stops_gpu_meter=True,
            stops_storage_meter=False,
            reversible=None,
            keeps=("volume-disk", "network-volume"),
            loses=("container-disk",),
        ),
        BillingAction(
            verb="terminate",
            native_label="Terminate",
            kind="destroy",
            stops_gpu_meter=True,
            stops_storage_meter=None,
            reversible=False,
            keeps=("network-volume",),
            loses=("container-disk", "volume-disk"),
        ),
    ),
)

METER = Meter(
    kind=MeterKind.COMPUTE_AND_STORAGE,
    lifecycle=Lifecycle.RUNNING,
    per_hour=1.40,
    compute_per_hour=1.38,
    storage_per_hour=0.02,
    spent=3.0,
    at=NOW,
    source="RunPod REST v2",
    native_status="RUNNING",
    actions=("stop", "restart", "terminate"),
)


def cell(name: str = "gpt-a", **fields: object) -> Cell:
    """Return a done cell with a verified copy on the network volume."""
    base = Cell(
        name=name,
        cfg=f"{name}.toml",
        task="lm",
        state="done",
        durable="verified",
        durable_path=f"/net/{name}",
        out=f"/workspace/{name}",
    )
    return msgspec.structs.replace(base, **fields)


def box(*cells: Cell, **fields: object) -> BoxState:
    """Return a live, quiet box with one queue of `cells`."""
    base = BoxState(
        spec=BoxSpec(name="autodl-demo", host="h", provider=ProviderRef("runpod", "k3v9")),
        link=Link.LIVE,
        reason="",
        sample=Sample(boot="b", seq=1, at=NOW, disks=(Disk(mount="/workspace", bytes_used=38_200_000_000),)),
        sample_at=NOW - 1,
        queues=(QueueState(path="/root/job", at=NOW - 500, cells=cells or (cell(),), done=True),),
    )
    return msgspec.structs.replace(base, **fields)


def evidence(state: BoxState | None = None, verb: Verb = Verb.DESTROY, **fields: object) -> Evidence:
    """Return the evidence for an action with everything else in order."""
    arguments: dict[str, object] = {
        "meter": METER,
        "profile": PROFILE,
        "action": "stop" if verb is Verb.PARK else "terminate",
        "typed": "autodl-demo",
        **fields,
    }
    return gather(state or box(), verb=verb, now=NOW, **arguments)  # type: ignore[arg-type]


def text(found: Evidence, key: str) -> str:
    """Return the words of one item, and check that it is there once."""
    (item,) = [item for item in found.items if item.key == key]
    return item.text


def held(found: Evidence, key: str) -> bool:
    """Tell whether one item is in order."""
    (item,) = [item for item in found.items if item.key == key]
    return item.ok
