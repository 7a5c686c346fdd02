"""A quiet, finished box on a platform with one durable tier: what a test then spoils in one place."""

from __future__ import annotations

import msgspec

from rgt_tui.gate import CollectedResults, Consent, Situation, gather_evidence
from rgt_tui.model import (
    BillingAction,
    BillingVerb,
    BoxResults,
    BoxSpec,
    BoxState,
    CopyProof,
    DiskReading,
    Evidence,
    EvidenceItem,
    Hello,
    Lifecycle,
    LinkState,
    Meter,
    MeterKind,
    MountRow,
    Overrides,
    Profile,
    ProviderRef,
    QueueCell,
    QueueState,
    ReceivedTimes,
    ResultGroup,
    Sample,
    StoragePrice,
    StorageTier,
)

NOW = 1_790_000_000.0
"""The client's clock."""
TICKS = 5_000.0
"""The steady clock."""
GB = 10**9

PROFILE = Profile(
    id="runpod",
    name="RunPod",
    kind="ssh-rental",
    confidence="from-docs",
    top_danger="-",
    overrides=Overrides(detach="tmux"),
    tiers=(
        StorageTier(
            "container-disk",
            ("/",),
            survives_stop=False,
            survives_destroy=False,
            bills_while_stopped=False,
        ),
        StorageTier(
            "volume-disk",
            ("/workspace",),
            survives_stop=True,
            survives_destroy=False,
            bills_while_stopped=True,
            prices=(
                StoragePrice(
                    0.20, "USD", "GB-month", "2026-08", "https://runpod.example", when="stopped"
                ),
            ),
        ),
        StorageTier(
            "network-volume",
            ("/net",),
            survives_stop=True,
            survives_destroy=True,
            bills_while_stopped=True,
        ),
        StorageTier("odd", ("/odd",)),
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
OFF = msgspec.structs.replace(
    METER, lifecycle=Lifecycle.STOPPED, native_status="EXITED", actions=("start", "terminate")
)

HELLO = Hello(
    proto=1,
    agent="a",
    boot="b",
    host="h",
    python="-",
    pid=1,
    at=NOW,
    identity={"RUNPOD_POD_ID": "k3v9"},
)


def cell(name: str = "gpt-a", **fields: object) -> QueueCell:
    """Return a done cell with a verified copy on the network volume."""
    base = QueueCell(
        name=name,
        cfg=f"{name}.toml",
        task="lm",
        state="done",
        ended=NOW - 900,
        durable="verified",
        durable_path=f"/net/{name}",
        out=f"/workspace/{name}",
    )
    return msgspec.structs.replace(base, **fields)


def group(
    path: str = "/workspace/gpt-a", owner: str = "cell gpt-a", **fields: object
) -> ResultGroup:
    """Return a directory that its cell's verified copy covers."""
    base = ResultGroup(
        path=path,
        owner=owner,
        files=3,
        bytes=2 * GB,
        newest=NOW - 1000,
        newest_path=f"{path}/last.pt",
        fingerprint=f"f:{path}",
    )
    return msgspec.structs.replace(base, **fields)


def proof(path: str = "/workspace/gpt-a", **fields: object) -> CopyProof:
    """Return a whole copy of a directory."""
    base = CopyProof(
        path=path, fingerprint=f"f:{path}", where=f"/home/me/pulled{path}", files=3, checked=TICKS
    )
    return msgspec.structs.replace(base, **fields)


def mounts(**changed: tuple[str, str]) -> tuple[MountRow, ...]:
    """Return the mount table of a box: point without its slash (``root`` = the root) → kind and device."""
    table = {
        "root": ("overlay", "0:300"),
        "workspace": ("xfs", "8:1"),
        "net": ("nfs4", "0:52"),
        **changed,
    }
    rows = {f"/{name}" if name != "root" else "/": row for name, row in table.items() if row[0]}
    return tuple(
        MountRow(path=path, kind=kind, device=device) for path, (kind, device) in rows.items()
    )


def told(
    *groups: ResultGroup, proofs: tuple[CopyProof, ...] = (), **fields: object
) -> CollectedResults:
    """Return what a box lists."""
    listed = BoxResults(at=NOW, generation="g1", groups=groups or (group(),))
    return CollectedResults(
        results=msgspec.structs.replace(listed, **fields), at=TICKS - 2, proofs=proofs
    )


def sample(**fields: object) -> Sample:
    """Return a reading of a box on which nothing happens."""
    base = Sample(
        boot="b",
        seq=1,
        at=NOW,
        disks=(
            DiskReading(mount="/workspace", bytes_used=38_200_000_000, kind="xfs"),
            DiskReading(mount="/", kind="overlay"),
            DiskReading(mount="/net", kind="nfs4"),
        ),
        transfers=(),
        input_at=0.0,
    )
    return msgspec.structs.replace(base, **fields)


def box(*cells: QueueCell, **fields: object) -> BoxState:
    """Return a live, quiet box with one queue of `cells`."""
    base = BoxState(
        spec=BoxSpec(name="autodl-demo", host="h", provider=ProviderRef("runpod", "k3v9")),
        link=LinkState.LIVE,
        reason="",
        hello=HELLO,
        sample=sample(),
        sample_at=NOW - 1,
        clock_skew=0.0,
        queues=(QueueState(path="/root/job", at=NOW - 500, cells=cells or (cell(),), done=True),),
        seen=ReceivedTimes(sample=TICKS - 1, queues={"/root/job": TICKS - 500}),
    )
    return msgspec.structs.replace(base, **fields)


def spec(**fields: object) -> BoxSpec:
    """Return the description of the box, changed."""
    return msgspec.structs.replace(box().spec, **fields)


def situation(
    state: BoxState | None = None, verb: BillingVerb = BillingVerb.DESTROY, **fields: object
) -> Situation:
    """Return what is known of a box with everything in order; ``tiers`` is the provider's word in the meter."""
    tiers = fields.pop("tiers", {})
    base = Situation(
        state=state or box(),
        meter=METER,
        meter_at=TICKS,
        profile=PROFILE,
        action="stop" if verb is BillingVerb.PARK else "terminate",
        told=told(),
        now=NOW,
        ticks=TICKS,
    )
    given = msgspec.structs.replace(base, **fields)
    return msgspec.structs.replace(given, meter=msgspec.structs.replace(given.meter, tiers=tiers))


def evidence(
    state: BoxState | None = None, verb: BillingVerb = BillingVerb.DESTROY, **fields: object
) -> Evidence:
    """Return the evidence for an action with everything else in order.

    Args:
        state: The box; None = a quiet one.
        verb: Park or destroy.
        fields: Of the `Situation`, and of the `Consent`.
    """
    says = {key: fields.pop(key) for key in Consent.__struct_fields__ if key in fields}
    consent = Consent(**{"typed": "autodl-demo", **says})  # type: ignore[arg-type]
    return gather_evidence(situation(state, verb, **fields), verb, consent)


def items(found: Evidence, kind: str) -> list[EvidenceItem]:
    """Return the items of one kind."""
    return [item for item in found.items if item.kind == kind]


def text(found: Evidence, kind: str) -> str:
    """Return the words of all items of one kind, and check that there are any."""
    assert items(found, kind), f"no item about {kind}"
    return "; ".join(item.text for item in items(found, kind))


def held(found: Evidence, kind: str) -> bool:
    """Tell whether all items of one kind are in order."""
    assert items(found, kind), f"no item about {kind}"
    return all(item.ok for item in items(found, kind))


def against(found: Evidence) -> list[str]:
    """Return the keys of what keeps the gate shut."""
    return [item.key for item in found.items if item.is_blocking]
