"""What the evidence says of a box: queue, storage without a list, provider, protection, name."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.gate import CollectedResults, find_storage_tiers
from rgt_tui.model import (
    BillingVerb,
    BoxResults,
    Checkpoint,
    Checkpoints,
    DiskReading,
    DroppedCounts,
    LinkState,
    Meter,
    QueueState,
)
from tests.unit.gate.builders import (
    METER,
    NOW,
    PROFILE,
    TICKS,
    against,
    box,
    cell,
    evidence,
    group,
    held,
    items,
    mounts,
    proof,
    sample,
    situation,
    spec,
    text,
    told,
)

replace = msgspec.structs.replace
UNLISTED = CollectedResults(problem="the box is unreachable", at=TICKS)
"""Nobody could ask the box what lies on it: cells and checkpoints are all that is known."""


def test_waiting_cells_let_a_park_pass_and_hold_a_destroy() -> None:
    state = box(cell(), cell("gpt-b", state="waiting", durable=None))
    assert held(evidence(state, BillingVerb.PARK), "queue")
    assert (
        text(evidence(state, BillingVerb.PARK), "queue")
        == "1 of 2 cells will continue after a start: gpt-b (waiting)"
    )
    assert text(evidence(state), "queue") == "1 of 2 cells never ran: gpt-b"
    assert not held(evidence(state), "queue")


def test_one_cell_is_not_called_cells() -> None:
    assert text(evidence(box(cell())), "queue") == "1 cell, all done"
    assert text(evidence(box(cell(), cell("b"))), "queue") == "2 cells, all done"
    alone = box(cell(state="waiting", durable=None))
    assert text(evidence(alone), "queue") == "1 of 1 cell never ran: gpt-a"
    assert (
        text(evidence(alone, BillingVerb.PARK), "queue")
        == "1 of 1 cell will continue after a start: gpt-a (waiting)"
    )


def test_each_cell_that_is_not_done_is_an_item_of_its_own() -> None:
    cells = (
        cell(),
        cell("b", state="failed", reason="CUDA\x1b[2J OOM"),
        cell("c", state="interrupted"),
    )
    found = evidence(box(*cells, cell("d", state="waiting")))
    assert against(found) == ["queue:b", "queue:c", "queue:waiting"]
    assert items(found, "queue")[0].text == "b is failed, not done (CUDA·[2J OOM)"
    assert all(item.forfeitable for item in items(found, "queue"))
    assert against(evidence(box(*cells), BillingVerb.PARK)) == []


def test_a_running_cell_holds_both_verbs() -> None:
    state = box(cell("gpt-b", state="running"))
    for verb in BillingVerb:
        assert text(evidence(state, verb), "queue") == "by the queue, gpt-b is running"


def test_cells_of_one_name_in_two_queues_are_told_apart() -> None:
    two = tuple(
        QueueState(path=path, at=NOW, cells=(cell("a", state="failed"),)) for path in ("/x", "/y")
    )
    assert against(evidence(box(queues=two), told=told(proofs=(proof(),)))) == [
        "queue:/x a",
        "queue:/y a",
    ]


def test_no_queue_hides_nothing_where_the_box_has_listed_all_results() -> None:
    assert held(evidence(box(queues=())), "queue")
    unknown = evidence(box(queues=()), told=UNLISTED)
    assert "so its results are unknown" in text(unknown, "queue")
    assert items(unknown, "queue")[0].forfeitable
    assert held(evidence(box(queues=()), BillingVerb.PARK, told=UNLISTED), "queue")
    part = replace(evidence_told(), problems=("/workspace/x: Permission denied",))
    assert not held(
        evidence(box(queues=()), told=CollectedResults(results=part, at=TICKS)), "queue"
    )


def evidence_told() -> BoxResults:
    results = told().results
    assert results is not None
    return results


def test_an_unreadable_queue_holds_a_destroy() -> None:
    broken = QueueState(path="/j", at=NOW, error="state.json: not JSON")
    assert against(evidence(box(queues=(broken,)), told=told(proofs=(proof(),)))) == [
        "queue:unread /j"
    ]
    assert held(evidence(box(queues=(broken,)), BillingVerb.PARK), "queue")
    assert held(evidence(box(queues=(QueueState(path="/j", at=NOW),))), "queue")
    lost = box(left_out=DroppedCounts(queues=2))
    assert against(evidence(lost)) == ["queue:left out"]


def test_each_item_carries_the_time_of_its_own_source() -> None:
    """A queue that was told hours ago is hours old, however fresh the sample is."""
    found = {item.kind: item.at for item in evidence().items}
    assert found["queue"] == TICKS - 500
    assert found["quiet"] == TICKS - 1
    assert found["results"] == TICKS - 2
    assert found["provider"] == TICKS
    two = (*box().queues, QueueState(path="/q", at=NOW))
    assert [item.at for item in items(evidence(box(queues=two)), "queue")] == [None]
    old = replace(box().seen, queues={"/root/job": TICKS - 500, "/q": TICKS - 21_600})
    assert [item.at for item in items(evidence(box(queues=two, seen=old)), "queue")] == [
        TICKS - 21_600
    ]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"durable": "pending"}, "no verified durable copy (pending)"),
        ({"durable": None}, "the job names no durable directory"),
        ({"durable_path": None}, "no verified durable copy"),
        (
            {"durable_path": "/workspace/safe"},
            "/workspace/safe (volume-disk) is erased with the box",
        ),
        ({"durable_path": "/net/../workspace/x"}, "no known storage tier"),
        ({"durable_path": "net/x"}, "no known storage tier"),
        ({"durable_path": "/network/x"}, "(container-disk) is erased"),
        ({"durable_path": "/odd/x"}, "no proof"),
    ],
)
def test_a_destroy_wants_a_verified_copy_where_it_survives(
    fields: dict[str, object], why: str
) -> None:
    found = evidence(box(replace(cell(), **fields)), told=UNLISTED)
    assert not held(found, "durable")
    assert why in text(found, "durable")


def test_checkpoints_that_no_done_cell_accounts_for_hold_a_destroy() -> None:
    lone = Checkpoints(
        run="own-run",
        at=NOW,
        items=(Checkpoint(path="/workspace/own/step-1", step=1, bytes=10, at=NOW),),
    )
    found = evidence(box(checkpoints=(lone,)), told=UNLISTED)
    assert text(found, "durable") == "what own-run has at /workspace/own/step-1 is erased by it"


def test_without_a_list_a_park_keeps_what_lies_on_a_tier_that_survives_a_stop() -> None:
    undone = cell("gpt-b", state="interrupted", durable=None, durable_path=None)
    assert against(evidence(box(undone), BillingVerb.PARK, told=UNLISTED)) == ["results"]
    on_root = replace(undone, out="/root/gpt-b")
    found = evidence(box(on_root), BillingVerb.PARK, told=UNLISTED)
    assert text(found, "durable") == "what gpt-b has at /root/gpt-b is erased by it"
    unsaid = evidence(box(replace(undone, out="/odd/gpt-b")), BillingVerb.PARK, told=UNLISTED)
    assert "may be erased" in text(unsaid, "durable")
    assert not held(unsaid, "durable")
    assert against(
        evidence(box(replace(on_root, state="waiting")), BillingVerb.PARK, told=UNLISTED)
    ) == ["results"]
    lost = evidence(box(left_out=DroppedCounts(checkpoints=3)), BillingVerb.PARK, told=UNLISTED)
    assert "not kept of this box: 3 lists of checkpoints; " in text(lost, "durable")


@pytest.mark.parametrize(
    ("meter", "why"),
    [
        (replace(METER, error="timed out"), "could not be read: timed out"),
        (
            replace(METER, native_status="EXITED", actions=("start",)),
            "does not accept terminate now (accepts: start)",
        ),
        (Meter(at=NOW), "accepts: nothing"),
    ],
)
def test_the_provider_must_have_said_just_now_that_it_would(meter: Meter, why: str) -> None:
    found = evidence(meter=meter)
    assert not held(found, "provider")
    assert why in text(found, "provider")


def test_a_platform_without_the_verb_refuses_it() -> None:
    only_destroy = replace(PROFILE, billing=PROFILE.billing[1:])
    assert "has no action that would park" in text(
        evidence(verb=BillingVerb.PARK, profile=only_destroy), "provider"
    )
    unsure = replace(PROFILE, billing=(replace(PROFILE.billing[0], stops_gpu_meter=None),))
    found = evidence(verb=BillingVerb.PARK, profile=unsure)
    assert "is not certain to stop" in text(found, "provider")
    assert not items(found, "provider")[0].forfeitable


def test_a_verb_that_leaves_the_meter_running_has_to_be_wanted_by_name() -> None:
    """A Kubernetes Job is deleted to free its GPU: the node bills on, and a person has to say that they know."""
    on = replace(
        PROFILE.billing[1],
        stops_gpu_meter=False,
        native_label="delete job",
        note="The node bills on.",
    )
    profile = replace(PROFILE, billing=(on,))
    found = evidence(profile=profile)
    (item,) = items(found, "provider")
    assert "delete job does not stop the GPU meter: The node bills on." in item.text
    assert item.is_blocking
    assert item.forfeitable
    given = evidence(profile=profile, forfeits=frozenset({"provider"}))
    assert [one.key for one in given.forfeits] == ["provider"]
    assert not items(given, "provider")[0].is_blocking
    for meter in (replace(METER, error="timed out"), replace(METER, actions=("start",))):
        blind = evidence(profile=profile, meter=meter, forfeits=frozenset({"provider"}))
        assert items(blind, "provider")[0].is_blocking, (
            "that the provider refuses is nobody's to give up"
        )


def test_each_other_machine_that_the_verb_ends_is_an_item_that_a_person_gives_up_by_name() -> None:
    others = {"lm-1-x": "cell b, Running, 1 GPU", "lm-2-x": "cell c, Running, 1 GPU"}
    meter = replace(METER, others=others, chosen="lm-0-x is the box")
    found = evidence(meter=meter)
    box_item, *rest = items(found, "pods")
    assert (box_item.ok, box_item.text) == (True, "lm-0-x is the box")
    assert [item.key for item in rest] == ["pods:lm-1-x", "pods:lm-2-x"]
    assert all(item.is_blocking and item.forfeitable for item in rest)
    given = evidence(meter=meter, forfeits=frozenset({"pods:lm-1-x"}))
    assert [item.key for item in items(given, "pods") if item.is_blocking] == ["pods:lm-2-x"]


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("", "not typed yet"),
        ("autodl-demo ", "a blank before or after"),
        ("\tautodl-demo", "a blank before or after"),
        ("AutoDL-demo", "upper and lower case"),
        ("autodl-dem\N{CYRILLIC SMALL LETTER O}", "only look like"),
        ("autodl\N{NON-BREAKING HYPHEN}demo", "only look like"),
        ("autodl-demo\N{ZERO WIDTH SPACE}", "only look like"),
        ("autodl-dem", "not the box's name"),
    ],
)
def test_the_name_is_compared_character_by_character(typed: str, why: str) -> None:
    found = evidence(typed=typed)
    assert not held(found, "name")
    assert why in text(found, "name")


def test_a_name_in_another_normal_form_is_another_name() -> None:
    accented = spec(name="caf\N{LATIN SMALL LETTER E WITH ACUTE}")
    assert not held(evidence(box(spec=accented), typed="cafe\N{COMBINING ACUTE ACCENT}"), "name")
    assert held(evidence(box(spec=accented), typed=accented.name), "name")


def test_a_box_without_a_provider_is_judged_as_any_other_and_clicked_by_the_person() -> None:
    bare = spec(provider=None)
    found = evidence(box(spec=bare), action="click", meter=replace(METER, actions=("click",)))
    assert "rgt sends nothing, you have to click it" in text(found, "provider")
    assert held(found, "provider")
    assert not held(found, "identity"), "where the connection leads to is not known here"
    there = box(spec=bare, peer=("192.0.2.7", 22))
    assert "find this machine on the console" in text(evidence(there), "identity")
    assert held(evidence(there), "identity")
    (away,) = items(evidence(box(spec=bare, link=LinkState.UNREACHABLE)), "identity")
    assert not away.ok
    assert away.forfeitable


def test_a_durable_path_on_which_nothing_is_mounted_keeps_nothing() -> None:
    """The copy under /net was verified, and lies on the disk that goes with the machine."""
    there = box(cell(), sample=sample(disks=(DiskReading(mount="/"), DiskReading(mount="/net"))))
    assert held(evidence(there), "results")
    bare = box(
        cell(), sample=sample(disks=(DiskReading(mount="/"), DiskReading(mount="/net", on="/")))
    )
    found = evidence(bare)
    assert not held(found, "results")
    assert "/net is not a mount of its own on this box: it is on / (container-disk)" in [
        item.text for item in found.items if item.kind == "tiers"
    ]
    only = replace(
        PROFILE, tiers=tuple(tier for tier in PROFILE.tiers if "/net" in tier.mounts), billing=()
    )
    (said,) = items(evidence(bare, profile=only), "tiers")
    assert (
        said.text
        == "/net is not a mount of its own on this box: it is on /, of which nothing is known"
    )


@pytest.mark.parametrize(
    ("changed", "why", "counts"),
    [
        ({"net": ("", "")}, "nothing is mounted there", "container-disk"),
        ({"net": ("ext4", "0:300")}, "it is on the device of the root", "container-disk"),
        ({"net": ("tmpfs", "0:99")}, "it is in memory (tmpfs)", ""),
        ({"net": ("overlay", "0:301")}, "it is a layer of the container (overlay)", ""),
    ],
)
def test_storage_that_outlives_the_box_by_a_word_alone_does_not_count(
    changed: dict[str, tuple[str, str]], why: str, counts: str
) -> None:
    """The provider's word is old, or the copy was written before the volume was mounted."""
    assert held(evidence(told=told(mounts=mounts())), "results")
    for claims in ({}, {"/net": "network-volume"}):
        found = evidence(told=told(mounts=mounts(**changed)), tiers=claims)
        assert not held(found, "results")
        (note,) = items(found, "tiers")
        assert why in note.text and "/net is said to be network-volume" in note.text
    known, _ = find_storage_tiers(
        situation(told=told(mounts=mounts(**changed))), BillingVerb.DESTROY
    )
    assert known["/net"] == counts


def test_a_volume_reported_at_the_root_opens_nothing() -> None:
    lone = group("/root/out", owner="")
    claimed = {"/": "network-volume"}
    for root in (("overlay", "0:300"), ("ext4", "8:1"), ("tmpfs", "0:7")):
        listed = told(group(), lone, mounts=mounts(root=root))
        found = evidence(told=listed, tiers=claimed)
        assert "results:/root/out" in against(found)
        assert any("/ is said to be network-volume" in item.text for item in items(found, "tiers"))
        assert "results:/root/out" in against(evidence(box(spec=spec(tiers=claimed)), told=listed))
    booted = told(group(), lone, mounts=mounts(root=("nfs4", "0:40")))
    assert "results:/root/out" not in against(evidence(told=booted, tiers=claimed)), (
        "a node without a disk"
    )


def test_without_a_table_of_mounts_no_word_about_storage_counts() -> None:
    bare = box(cell(), sample=sample(disks=()))
    assert not held(evidence(bare), "results")
    assert held(evidence(box(cell()), told=told(mounts=mounts())), "results")


def test_a_protected_box_needs_an_act_of_its_own() -> None:
    state = box(spec=spec(protected=True))
    for typed in ("", "autodl-demo", "unprotect autodl-demo ", "Unprotect autodl-demo"):
        found = evidence(state, unprotect=typed)
        assert against(found) == ["protected"]
        assert not items(found, "protected")[0].forfeitable
    assert against(evidence(state, unprotect="unprotect autodl-demo")) == []
    assert items(evidence(), "protected") == []


def test_readonly_refuses_both_verbs_and_nobody_can_forfeit_it() -> None:
    for verb in BillingVerb:
        found = evidence(verb=verb, readonly=True, forfeits=frozenset({"readonly"}))
        assert against(found) == ["readonly"]


def test_person_and_provider_disagree_on_a_tier_and_the_worse_counts() -> None:
    both = tuple(
        replace(t, mounts=("/workspace",)) if t.name == "network-volume" else t
        for t in PROFILE.tiers
    )
    profile = replace(PROFILE, tiers=both)
    copied = box(cell(durable_path="/workspace/x"))
    claimed = box(*copied.queues[0].cells, spec=spec(tiers={"/workspace": "network-volume"}))
    agreed = evidence(claimed, profile=profile, tiers={"/workspace": "network-volume"})
    assert held(agreed, "results")
    assert items(agreed, "tiers") == []
    assert held(evidence(claimed, profile=profile), "results"), (
        "where the provider says nothing the person counts"
    )
    for provided in ({"/workspace": "volume-disk"}, {"/": "container-disk"}):
        found = evidence(claimed, profile=profile, tiers=provided)
        assert not held(found, "results")
        for name in ("network-volume", next(iter(provided.values()))):
            assert name in text(found, "tiers")
        assert all(item.doubt for item in items(found, "tiers")), (
            "a disagreement is not shown as proved"
        )
    vouched = evidence(copied, profile=profile, tiers={"/workspace": "network-volume"})
    assert held(vouched, "results")
    modest = box(*copied.queues[0].cells, spec=spec(tiers={"/workspace": "volume-disk"}))
    assert not held(
        evidence(modest, profile=profile, tiers={"/workspace": "network-volume"}), "results"
    )
    another = evidence(claimed, profile=profile, tiers={"/workspace": "a tier of another platform"})
    assert held(another, "results"), (
        "a name that the profile lacks is a word about another platform"
    )
    unknown = box(*copied.queues[0].cells, spec=spec(tiers={"/workspace": "unheard-of"}))
    assert not held(evidence(unknown, profile=profile), "results")


def test_whether_the_box_can_be_held_still_is_told_before() -> None:
    assert held(evidence(), "seal")
    found = evidence(unsealed="there is no agent on it")
    assert against(found) == ["seal"]
    assert "there is no agent on it" in text(found, "seal")
    assert items(found, "seal")[0].forfeitable
