"""A box that rgt parked can be destroyed later: what was sealed then is good until the machine was started."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.gate import (
    InstanceTarget,
    ParkedEvidence,
    ParkRecord,
    evaluate_evidence,
    find_park_problem,
    worth_keeping,
)
from rgt_tui.model import BillingVerb, BoxResults, Lifecycle, LinkState, Permit
from tests.unit.gate.builders import (
    METER,
    NOW,
    OFF,
    TICKS,
    against,
    box,
    cell,
    evidence,
    group,
    mounts,
    proof,
    told,
)

replace = msgspec.structs.replace
TARGET = InstanceTarget(kind="runpod", account="default@vendor", instance="k3v9")
STARTED = NOW - 9000
PARKED = ParkRecord(
    target=TARGET,
    box="autodl-demo",
    at=NOW - 86_400,
    started=STARTED,
    seal="nonce",
    results=BoxResults(at=NOW, generation="g1", groups=(group(),), mounts=mounts()),
    queues=box().queues,
)
GONE = box(link=LinkState.UNREACHABLE, queues=(), hello=None, sample=None)
"""What is known of a parked box after a restart of rgt: nothing."""


def test_a_parked_box_is_destroyed_on_what_was_sealed_then() -> None:
    bare = against(evidence(GONE, meter=OFF))
    assert "identity" in bare
    found = evidence(GONE, meter=OFF, parked=PARKED, told=told(proofs=()))
    assert isinstance(evaluate_evidence(found, TICKS), Permit), against(found)
    assert found.generation == "g1"


def test_its_copies_are_looked_at_as_they_are_now() -> None:
    lone = replace(
        PARKED,
        results=BoxResults(at=NOW, generation="g1", groups=(group("/workspace/x", owner=""),)),
    )
    key = "results:/workspace/x"
    assert against(evidence(GONE, meter=OFF, parked=lone, told=told())) == [key]
    whole = told(proofs=(proof("/workspace/x"),))
    assert against(evidence(GONE, meter=OFF, parked=lone, told=whole)) == []
    flipped = told(proofs=(proof("/workspace/x", errors=(("x", "sha256 differs"),)),))
    assert against(evidence(GONE, meter=OFF, parked=lone, told=flipped)) == [key]


def test_its_cells_count_as_they_were() -> None:
    failed = box(cell(), cell("b", state="failed")).queues
    assert against(evidence(GONE, meter=OFF, parked=replace(PARKED, queues=failed))) == ["queue:b"]


@pytest.mark.parametrize(
    ("meter", "why"),
    [
        (METER, "not off"),
        (replace(OFF, lifecycle=Lifecycle.UNKNOWN), "not off"),
        (replace(OFF, error="timed out"), "could not be read"),
        (replace(OFF, started=NOW - 60), "started since"),
        (replace(OFF, started=STARTED - 1), "started since"),
    ],
)
def test_it_is_good_no_more_once_the_machine_was_on(meter: object, why: str) -> None:
    assert why in str(find_park_problem(PARKED, meter))  # type: ignore[arg-type]
    assert "identity" in against(evidence(GONE, meter=meter, parked=PARKED))


@pytest.mark.parametrize("started", [None, STARTED])
def test_the_providers_word_for_the_last_start_is_compared_with_itself(
    started: float | None,
) -> None:
    assert find_park_problem(PARKED, replace(OFF, started=started)) is None


def test_storage_that_is_named_only_since_the_stop_has_no_witness() -> None:
    """The mount table is from before the stop: it cannot bear out what the provider has said since."""
    claimed = replace(OFF, tiers={"/workspace": "network-volume"})
    assert "names other storage" in str(find_park_problem(PARKED, claimed))
    assert "identity" in against(evidence(GONE, meter=OFF, tiers=claimed.tiers, parked=PARKED))
    assert find_park_problem(replace(PARKED, tiers=claimed.tiers), claimed) is None
    assert find_park_problem(replace(PARKED, tiers=claimed.tiers), OFF) is None, (
        "less is kept than was said: no danger"
    )


def test_a_box_that_answers_is_asked_itself() -> None:
    found = evidence(box(cell(), cell("b", state="failed")), meter=OFF, parked=PARKED)
    assert "queue:b" in against(found)
    parking = evidence(GONE, BillingVerb.PARK, meter=OFF, parked=PARKED)
    assert "identity" in against(parking), "only a destroy follows a park"


def test_only_what_was_proved_and_sealed_is_kept() -> None:
    found = evidence(verb=BillingVerb.PARK)
    assert worth_keeping(found, "nonce", "g1")
    assert not worth_keeping(found, "", "g1")
    assert not worth_keeping(found, "nonce", "g2")
    for key in ("identity", "quiet:training", "quiet", "results", "results:complete", "seal"):
        items = tuple(
            replace(item, forfeited=item.kind == key.partition(":")[0]) for item in found.items
        )
        named = tuple(replace(item, key=key) if item.forfeited else item for item in items)
        assert not worth_keeping(replace(found, items=named), "nonce", "g1"), key
    lone = evidence(
        verb=BillingVerb.PARK,
        told=told(group("/root/x", owner="")),
        forfeits=frozenset({"results:/root/x"}),
    )
    assert worth_keeping(lone, "nonce", "g1")
    meter = replace(METER, others={"lm-1-x": "cell b, Running"})
    pods = evidence(
        verb=BillingVerb.PARK, meter=meter, forfeits=frozenset({"pods:lm-1-x"}), action="stop"
    )
    assert not worth_keeping(pods, "nonce", "g1"), "what another pod held was never listed"


def test_the_file_is_read_as_it_was_written_and_only_for_its_own_instance(tmp_path: Path) -> None:
    store = ParkedEvidence(tmp_path / "parked")
    assert store.find_record(TARGET) is None
    store.save_record(PARKED)
    assert store.find_record(TARGET) == PARKED
    other = replace(TARGET, account="OTHER@vendor")
    assert store.find_record(other) is None
    (path,) = (tmp_path / "parked").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    path.rename(path.with_name(f"{other.file_name}.json"))
    assert store.find_record(other) is None, "a file under another name tells of another machine"
    store.save_record(PARKED)
    store.delete_record(TARGET)
    assert store.find_record(TARGET) is None
    store.delete_record(TARGET)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"target": 1}', b"\xff"])
def test_a_damaged_file_tells_nothing(tmp_path: Path, data: bytes) -> None:
    store = ParkedEvidence(tmp_path)
    store.save_record(PARKED)
    (path,) = tmp_path.iterdir()
    path.write_bytes(data)
    assert store.find_record(TARGET) is None
