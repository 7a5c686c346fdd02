"""No directory that holds results is lost unless it is stored, copied, called no result, or given up by its name."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.gate import CollectedResults, evaluate_evidence, facts_digest
from rgt_tui.gate.roster import LEFT_OUT_LIMIT_BYTES, SHOWN, matches_glob
from rgt_tui.model import BillingVerb, CopyProof, MountRow, Permit, QueueState, SkippedFiles
from tests.unit.gate.builders import (
    GB,
    NOW,
    TICKS,
    against,
    box,
    cell,
    evidence,
    group,
    held,
    items,
    proof,
    spec,
    text,
    told,
)

replace = msgspec.structs.replace
LONE = group("/workspace/out", owner="")
"""What nobody owns."""


def test_an_ended_training_beside_an_empty_queue_is_listed() -> None:
    """An empty queue said nothing about the training that somebody had started by hand."""
    state = box(queues=(QueueState(path="/q", at=NOW),))
    found = evidence(state, told=told(group("/workspace/hf", owner="run hf/train")))
    assert against(found) == ["results:/workspace/hf"]
    (item,) = items(found, "results")
    assert "run hf/train, 3 files, 2.0 GB" in item.text and item.bytes == 2 * GB
    assert item.forfeitable and not item.ignorable
    assert (item.path, item.newest) == ("/workspace/hf", NOW - 1000)


def test_a_checkpoint_newer_than_its_verified_copy_is_named() -> None:
    newer = group(newest=NOW - 900 + 7200, newest_path="/workspace/gpt-a/late.pt")
    found = evidence(told=told(newer))
    assert against(found) == ["results:/workspace/gpt-a"]
    assert "newer than its verified copy at /net/gpt-a: /workspace/gpt-a/late.pt" in text(
        found, "results"
    )
    assert against(evidence(told=told(group(newest=NOW - 899)))) == []
    assert against(evidence(box(cell(ended=None)))) == ["results:/workspace/gpt-a"]


@pytest.mark.parametrize(
    "fields",
    [
        {"durable": "failed"},
        {"durable_path": None},
        {"durable_path": "/workspace/safe"},
        {"durable_path": "/odd/safe"},
        {"state": "failed"},
    ],
)
def test_a_cells_copy_counts_only_where_it_was_verified_and_stays(
    fields: dict[str, object],
) -> None:
    assert "results:/workspace/gpt-a" in against(evidence(box(replace(cell(), **fields))))


def test_a_pulled_copy_counts_as_long_as_both_sides_are_as_they_were() -> None:
    bare = box(cell(durable=None, durable_path=None))
    assert against(evidence(bare)) == ["results:/workspace/gpt-a"]
    assert against(evidence(bare, told=told(proofs=(proof(),)))) == []
    changed = evidence(bare, told=told(group(fingerprint="now"), proofs=(proof(),)))
    assert "it has changed since it was copied to /home/me/pulled" in text(changed, "results")
    assert "/workspace/gpt-a/last.pt" in text(changed, "results")
    flipped = proof(errors=(("/home/me/pulled/last.pt", "sha256 differs"), ("b", "gone")))
    damaged = evidence(bare, told=told(proofs=(flipped,)))
    assert "/home/me/pulled/last.pt: sha256 differs; b: gone" in text(damaged, "results")
    many = proof(errors=tuple((f"step-{n}.pt", "gone") for n in range(23)))
    told_of = text(evidence(bare, told=told(proofs=(many,))), "results")
    assert "step-19.pt: gone; and 3 more" in told_of and "step-20.pt" not in told_of
    elsewhere = evidence(bare, told=told(proofs=(proof("/workspace/gpt-b"),)))
    assert against(elsewhere) == ["results:/workspace/gpt-a"]
    nothing = evidence(bare, told=told(group(fingerprint=""), proofs=(proof(fingerprint=""),)))
    assert against(nothing) == ["results:/workspace/gpt-a"], "no fingerprint proves nothing"


def test_what_could_not_be_looked_at_whole_proves_nothing() -> None:
    part = group(problem="secret: Permission denied")
    found = evidence(told=told(part, proofs=(proof(),)))
    assert against(found) == ["results:/workspace/gpt-a"]
    assert "secret: Permission denied" in text(found, "results")
    gap = evidence(told=told(problems=("/mnt: timed out",)))
    assert against(gap) == ["results:complete"]
    assert items(gap, "results")[0].forfeitable
    (forfeited,) = evidence(
        told=told(problems=("/mnt: timed out",)), forfeits=frozenset({"results:complete"})
    ).forfeits
    assert forfeited.key == "results:complete"


def test_what_nobody_owns_is_shown_with_its_size_and_pulled_ignored_or_forfeited() -> None:
    found = evidence(told=told(group(), LONE))
    (item,) = [item for item in items(found, "results") if item.is_blocking]
    assert (item.key, item.bytes, item.ignorable, item.forfeitable) == (
        "results:/workspace/out",
        2 * GB,
        True,
        True,
    )
    assert "nobody owns it, 3 files, 2.0 GB" in item.text
    assert against(evidence(told=told(group(), LONE, proofs=(proof("/workspace/out"),)))) == []
    ignored = evidence(told=told(group(), LONE), ignored=frozenset({item.key}))
    assert isinstance(evaluate_evidence(ignored, TICKS), Permit)
    assert "ignored by you" in text(ignored, "results")
    given_up = evidence(
        told=told(group(), LONE), forfeits=frozenset({item.key}), typed="forfeit 1 of autodl-demo"
    )
    assert isinstance(evaluate_evidence(given_up, TICKS), Permit)
    assert given_up.forfeits[0].bytes == 2 * GB


def test_the_fleet_file_ignores_what_nobody_owns_and_nothing_else() -> None:
    state = box(spec=spec(ignore=("/workspace/o*",)))
    assert against(evidence(state, told=told(group(), LONE))) == []
    assert "ignored by the fleet file (/workspace/o*)" in text(
        evidence(state, told=told(group(), LONE)), "results"
    )
    everything = box(cell(durable=None), spec=spec(ignore=("/workspace",)))
    for owner in ("cell gpt-a", "run gpt-a", "results /workspace/*", "job /root/job"):
        key = "results:/workspace/gpt-a"
        owned = told(group(owner=owner))
        assert against(evidence(everything, told=owned, ignored=frozenset({key}))) == [key], owner


@pytest.mark.parametrize(
    ("path", "glob", "answer"),
    [
        ("/workspace/out", "/workspace/out", True),
        ("/workspace/out", "/workspace/out/", True),
        ("/workspace/out/deep/er", "/workspace/out", True),
        ("/workspace/output", "/workspace/out", False),
        ("/workspace", "/workspace/out", False),
        ("/data/a/cache/x", "/data/*/cache", True),
        ("/data/a/b/cache", "/data/*/cache", True),
        ("/workspace/out", "out", False),
    ],
)
def test_a_glob_names_a_directory_and_all_below_it(path: str, glob: str, answer: bool) -> None:
    assert matches_glob(path, glob) is answer


def test_what_lies_on_storage_that_stays_is_not_at_stake() -> None:
    bare = box(cell(durable=None))
    assert against(evidence(bare, told=told(group("/net/x")))) == []
    assert against(evidence(bare, told=told(group("/odd/x")))) == ["results:/odd/x"]
    assert "may be erased (not in the profile)" in text(
        evidence(bare, told=told(group("/odd/x"))), "results"
    )
    kept = evidence(bare, BillingVerb.PARK, told=told(group("/workspace/x", owner="")))
    assert against(kept) == []
    assert text(kept, "results") == "directories: 1 on storage that stays (2.0 GB)"
    gone = evidence(bare, BillingVerb.PARK, told=told(group("/root/x", owner="")))
    assert against(gone) == ["results:/root/x"]
    assert "is erased" in text(gone, "results")


def test_a_cell_of_two_queues_owns_nothing_by_its_name_alone() -> None:
    two = tuple(QueueState(path=path, at=NOW, cells=(cell(),)) for path in ("/x", "/y"))
    assert against(evidence(box(queues=two))) == ["results:/workspace/gpt-a"]


def test_only_a_cell_has_a_copy_of_the_runners() -> None:
    state = box(cell("run x"))
    assert against(evidence(state, told=told(group("/workspace/x", owner="run x")))) == [
        "results:/workspace/x"
    ]
    assert against(evidence(state, told=told(group("/workspace/x", owner="cell run x")))) == []


def test_an_unknown_profile_and_an_unknown_list_say_nothing_is_safe() -> None:
    for verb in BillingVerb:
        found = evidence(verb=verb, profile=None)
        assert "the platform's profile is unknown" in text(found, "results")
        assert not items(found, "results")[0].forfeitable
        unlisted = evidence(
            verb=verb, told=CollectedResults(problem="the box is unreachable", at=TICKS)
        )
        assert against(unlisted) == ["results"]
        assert "the files on the box are unknown: the box is unreachable" in text(
            unlisted, "results"
        )
        assert unlisted.generation is None
    assert not held(evidence(told=CollectedResults()), "results")


def test_many_directories_are_one_item_beyond_the_largest() -> None:
    many = [
        group(f"/workspace/{number:03}", owner="", bytes=number) for number in range(SHOWN + 20)
    ]
    found = evidence(told=told(*many))
    assert len(items(found, "results")) == SHOWN + 1
    rest = items(found, "results")[-1]
    assert rest.text.startswith("20 smaller directories (190 B)")
    assert items(found, "results")[0].path == f"/workspace/{SHOWN + 19:03}"
    assert rest.forfeitable and not rest.ignorable
    other = evidence(told=told(replace(many[0], fingerprint="x"), *many[1:]))
    assert items(other, "results")[-1].fact != rest.fact


def test_what_is_left_out_is_shown_by_its_rule_with_the_newest_file() -> None:
    small = LEFT_OUT_LIMIT_BYTES
    caches = SkippedFiles(
        rule="caches", files=9, bytes=small, newest=NOW - 5, newest_path="/root/.cache/x\x1b"
    )
    packages = SkippedFiles(rule="conda\x1b packages", files=1, bytes=3 * GB, proved=True)
    found = evidence(told=told(skipped=(caches, packages)))
    shown = {item.key: item.text for item in items(found, "results") if "left out" in item.text}
    assert shown == {
        "results:left out": "left out: conda· packages (1 file, 3.0 GB)",
        "results:rule:caches": "left out by a rule: caches (9 files, 500 MB, newest /root/.cache/x·)",
    }
    assert against(found) == []
    more = (replace(caches, bytes=small - 1), replace(packages, bytes=4 * GB))
    assert facts_digest(evidence(told=told(skipped=more))) == facts_digest(found), (
        "a cache grows as it likes"
    )


def test_much_that_is_left_out_by_its_place_alone_must_be_ignored_by_name() -> None:
    much = told(skipped=(SkippedFiles(rule="caches", files=9, bytes=LEFT_OUT_LIMIT_BYTES + 1),))
    found = evidence(told=much)
    assert against(found) == ["results:rule:caches"]
    (item,) = [item for item in found.items if item.is_blocking]
    assert item.ignorable and item.forfeitable and "more than 500 MB" in item.text
    assert against(evidence(told=much, ignored=frozenset({"results:rule:caches"}))) == []
    assert against(evidence(box(spec=spec(ignore=("rule:caches",))), told=much)) == []
    assert against(evidence(box(spec=spec(ignore=("rule:other",))), told=much)) == [
        "results:rule:caches"
    ]
    proved = told(
        skipped=(SkippedFiles(rule="caches", bytes=LEFT_OUT_LIMIT_BYTES + 1, proved=True),)
    )
    assert against(evidence(told=proved)) == []


def test_a_date_that_does_not_count_is_shown_with_the_reason() -> None:
    found = evidence(told=told(no_since="the oldest process is older than the machine\x1b"))
    assert "files of any age count: the oldest process is older than the machine·" in text(
        found, "results"
    )
    assert against(found) == []


def test_copies_that_cannot_be_looked_at_are_told() -> None:
    found = evidence(told=replace(told(), proofs_problem="the ledger is damaged\x1b[2J"))
    assert "the copies here cannot be used as proof: the ledger is damaged·[2J" in text(
        found, "results"
    )


def test_times_of_the_box_are_told_by_the_clients_clock() -> None:
    found = evidence(box(cell(durable=None), clock_skew=100.0))
    assert items(found, "results")[0].newest == NOW - 1100
    unknown = evidence(box(cell(durable=None)), told=told(group(newest=0.0)))
    assert items(unknown, "results")[0].newest is None, "1970 is no time of a file"


@pytest.mark.parametrize(
    ("path", "ok"),
    [
        ("/workspace/gpt-a", True),  # the cell's own directory may well be a mount
        ("/workspace/gpt-a/scratch", False),
        ("/workspace/gpt-a/part", True),  # no mount
    ],
)
def test_a_mount_within_a_cell_s_directory_is_not_in_its_verified_copy(path: str, ok: bool) -> None:
    mounts = tuple(
        MountRow(path=point, kind="xfs", device=str(number))
        for number, point in enumerate(
            ("/", "/net", "/workspace/gpt-a", "/workspace/gpt-a/scratch")
        )
    )
    mounts = tuple(replace(row, kind="nfs4") if row.path == "/net" else row for row in mounts)
    found = evidence(box(), told=told(group(path), mounts=mounts))
    assert held(found, "results") is ok
    if not ok:
        assert "a separate mount, which the verified copy of the cell may lack" in text(
            found, "results"
        )
        proof = CopyProof(path=path, fingerprint=group(path).fingerprint, where="/home/me")
        assert held(
            evidence(box(), told=told(group(path), proofs=(proof,), mounts=mounts)), "results"
        )
