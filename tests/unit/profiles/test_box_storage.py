"""One answer to what survives: box screen, checks, events and gate agree where fleet file and provider differ."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.fleet import events_between
from rgt_tui.gate import CollectedResults, build_review, gather_evidence
from rgt_tui.health import evaluate_checks
from rgt_tui.model import (
    BillingVerb,
    BoxResults,
    BoxState,
    CheckStatus,
    DiskReading,
    MountRow,
    ResultGroup,
)
from rgt_tui.profiles import copies_of, load_profile, path_survives, storage_of
from rgt_tui.ui.widgets import Tone, disk_lines, text_of
from rgt_tui.ui.widgets.queue_lines import queue_lines
from tests.unit.gate.builders import NOW, TICKS, box, cell, sample, situation, spec

replace = msgspec.structs.replace
RUNPOD = load_profile("runpod")
DONE = cell("gpt-a", durable_path="/mnt/volume/gpt-a")


def claimed(provided: dict[str, str]) -> BoxState:
    """Return a pod whose fleet file says that /mnt/volume is a network volume."""
    disks = (DiskReading(mount="/"), DiskReading(mount="/mnt/volume"))
    state = box(
        DONE,
        spec=spec(profile="runpod", tiers={"/mnt/volume": "network-volume"}, durable="/mnt/volume"),
        sample=sample(disks=disks),
    )
    return replace(state, meter=replace(state.meter, tiers=provided, at=NOW))


AGREE = claimed({"/": "container-disk", "/mnt/volume": "network-volume"})
DIFFER = claimed({"/": "container-disk"})


def test_where_both_say_the_same_nothing_is_doubted() -> None:
    storage = storage_of(AGREE, RUNPOD, BillingVerb.DESTROY)
    assert storage.doubts == ()
    assert copies_of(AGREE)(DONE) is True


@pytest.mark.parametrize(
    ("kind", "device", "kept"),
    [("ext4", "259:1", None), ("tmpfs", "0:60", None), ("nfs4", "0:50", True), ("ext4", "", None)],
)
def test_a_disk_that_is_mounted_within_a_volume_does_not_outlive_the_box_with_it(
    kind: str, device: str, kept: bool | None
) -> None:
    rows = (
        MountRow(path="/", kind="overlay", device="0:1"),
        MountRow(path="/mnt/volume", kind="nfs4", device="0:50"),
        MountRow(path="/mnt/volume/scratch", kind=kind, device=device),
        MountRow(path="/mnt/volume/scratch/deep", kind="nfs4", device=device),
    )
    storage = storage_of(AGREE, RUNPOD, BillingVerb.DESTROY, rows)
    assert path_survives("/mnt/volume/x", RUNPOD, storage.known, BillingVerb.DESTROY) is True
    for path in ("/mnt/volume/scratch/x", "/mnt/volume/scratch/deep/x"):
        assert path_survives(path, RUNPOD, storage.known, BillingVerb.DESTROY) is kept
    assert bool(storage.doubts_at("/mnt/volume/scratch")) is (kept is None)
    said = msgspec.structs.replace(
        AGREE.spec, tiers=dict.fromkeys(("/mnt/volume", rows[2].path), "network-volume")
    )
    storage = storage_of(replace(AGREE, spec=said), RUNPOD, BillingVerb.DESTROY, rows)
    on_disk = kind != "tmpfs"
    assert (
        path_survives(rows[2].path, RUNPOD, storage.known, BillingVerb.DESTROY) is True
    ) is on_disk


def test_a_mount_with_a_path_that_is_none_changes_nothing() -> None:
    """A box can send any mount table; the evidence must not fail."""
    rows = tuple(
        MountRow(path=path, kind="nfs4", device=device)
        for path, device in (("/", "0:1"), ("/mnt/volume", "0:50"), ("", "8:9"), ("odd", "8:9"))
    )
    storage = storage_of(AGREE, RUNPOD, BillingVerb.DESTROY, rows)
    assert path_survives("/mnt/volume/x", RUNPOD, storage.known, BillingVerb.DESTROY) is True
    assert path_survives("/odd/x", RUNPOD, storage.known, BillingVerb.DESTROY) is False


@pytest.mark.parametrize(
    ("kind", "device", "kept", "words"),
    [
        ("tmpfs", "0:60", None, "/scratch is in memory (tmpfs): it is lost, although / is kept"),
        (
            "ext4",
            "8:17",
            None,
            "/scratch is a mount of its own within /: unknown whether it is kept",
        ),
        ("overlay", "0:1", True, ""),
    ],
)
def test_what_is_mounted_below_a_root_that_outlives_a_park_does_not_outlive_it_with_it(
    kind: str, device: str, kept: bool | None, words: str
) -> None:
    vast = load_profile("vastai")
    rows = (
        MountRow(path="/", kind="overlay", device="0:1"),
        MountRow(path="/scratch", kind=kind, device=device),
        MountRow(path="/dev/shm", kind="tmpfs", device="0:61"),
    )
    group = ResultGroup(path="/scratch/out", files=1, bytes=1, newest=NOW, fingerprint="f")
    state = box(spec=spec(profile="vastai"), sample=sample(disks=(DiskReading(mount="/"),)))
    storage = storage_of(state, vast, BillingVerb.PARK, rows)
    assert path_survives("/root/x", vast, storage.known, BillingVerb.PARK) is True
    assert path_survives("/scratch/out", vast, storage.known, BillingVerb.PARK) is kept
    assert path_survives("/dev/shm/x", vast, storage.known, BillingVerb.PARK) is None
    told = CollectedResults(
        results=BoxResults(at=NOW, generation="g", groups=(group,), mounts=rows), at=TICKS
    )
    given = situation(state, profile=vast, told=told)
    found = gather_evidence(given, BillingVerb.PARK)
    assert [item.text for item in found.items if item.kind == "tiers"] == [words] * bool(words)
    (item,) = [
        item for item in found.items if item.key == "results:/scratch/out" or item.key == "results"
    ]
    assert item.ok is bool(kept)
    shown = build_review(found, given, native_label="", will_send="", known=storage.known)
    assert any("container-disk" in line for line in shown.kept), "the root is still said to be kept"


def test_where_they_differ_the_worse_counts_and_both_are_named() -> None:
    storage = storage_of(DIFFER, RUNPOD, BillingVerb.DESTROY)
    (doubt,) = storage.doubts_at("/mnt/volume/gpt-a")
    assert "network-volume by the fleet file and container-disk by the provider" in doubt.text
    assert storage.doubts_at("/") == ()
    assert copies_of(DIFFER)(DONE) is False


@pytest.mark.parametrize(
    ("state", "green"), [(AGREE, True), (DIFFER, False)], ids=["agree", "differ"]
)
def test_the_box_screen_shows_no_green_words_for_storage_in_doubt(
    state: BoxState, green: bool
) -> None:
    (line, *_) = [made for made in queue_lines(state, 100, NOW) if "gpt-a" in text_of(made)]
    assert ("durable: verified" in text_of(line)) is green
    assert any(span.tone is Tone.PROVED for span in line) is green
    disks = [text_of(made) for made in disk_lines(state, RUNPOD, 42)]
    shown = next(text for text in disks if text.startswith("/mnt/volume"))
    assert shown.endswith("s d") is green
    assert ("▲" in shown) is not green
    assert ("by the fleet file" in " ".join(disks)) is not green


@pytest.mark.parametrize(
    ("state", "green"), [(AGREE, True), (DIFFER, False)], ids=["agree", "differ"]
)
def test_checks_and_events_say_the_same(state: BoxState, green: bool) -> None:
    checks = {one.id: one for one in evaluate_checks(state, RUNPOD, NOW)}
    for id_ in ("5.2", "5.3"):
        assert (checks[id_].status is CheckStatus.PASSED) is green, checks[id_]
    assert ("by the provider" in checks["5.3"].evidence) is not green
    running = replace(
        state,
        queues=(replace(state.queues[0], cells=(replace(DONE, state="running", durable=None),)),),
    )
    (said,) = [
        one for one in events_between(running, state, NOW) if one.text.startswith("gpt-a done")
    ]
    assert ("copy on the durable disk verified" in said.text) is green
