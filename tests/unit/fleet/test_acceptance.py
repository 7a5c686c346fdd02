"""What `rgt check-box` makes of what a box was measured to do: ok, doubtful, or refuse, each with its reason."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.cli.renting.box_check import exit_status
from rgt_tui.fleet.renting.acceptance import (
    BoxMeasurements,
    DiskTrial,
    EarlierCheck,
    ExpectedGpus,
    NamedGpu,
    NetTrial,
    TorchTrial,
    TrialDevice,
    addresses,
    data_folder,
    judge_measurements,
    keep_check,
    load_checks,
    remembered,
)
from rgt_tui.model import BoxSpec
from rgt_tui.profiles import load_profile

replace = msgspec.structs.replace
A100 = "NVIDIA A100-SXM4-80GB"
CARD = TrialDevice(device=0, name=A100, tflops=250.0, to_gpu_gbs=24.0, from_gpu_gbs=25.0)
TORCH = TorchTrial(torch="2.9.0", built_for="12.8", count=1, devices=(CARD,))
DISK = DiskTrial(
    dir="/workspace",
    free=900 << 30,
    total=1000 << 30,
    free_inodes=900,
    inodes=1000,
    write_mbs=800.0,
    read_mbs=900.0,
)
NET = NetTrial(url="https://hub.example/x", status=200, first_byte_s=0.2, bytes=8 << 20, mbs=40.0)
GOOD = BoxMeasurements(
    at=1.0, gpus=(NamedGpu(name=A100, total=80 << 30),), torch=TORCH, disk=DISK, net=(NET,)
)
ASKED = ExpectedGpus("A100", 1)
NO_GPU = ExpectedGpus()


def rows(
    found: BoxMeasurements = GOOD,
    expected: ExpectedGpus = ASKED,
    earlier: tuple[EarlierCheck, ...] = (),
) -> dict[str, str]:
    return {
        row.id: row.verdict.value for row in judge_measurements(found, expected, earlier, "runpod")
    }


def test_a_box_as_it_was_asked_for_is_fine() -> None:
    assert set(rows().values()) == {"ok"}
    assert list(rows()) == [
        "gpu",
        "cuda",
        "gemm",
        "pcie",
        "disk-write",
        "disk-read",
        "space",
        "inodes",
        "network hub.example",
    ]
    assert exit_status(judge_measurements(GOOD, ASKED, (), "runpod")) == 0


@pytest.mark.parametrize(
    ("change", "expected", "row", "verdict"),
    [
        ({"gpus": ()}, ASKED, "gpu", "refuse"),
        ({"gpus": (), "torch": None}, NO_GPU, "gpu", "ok"),
        ({"gpus": (), "torch": None}, NO_GPU, "cuda", "ok"),
        ({}, ExpectedGpus("A100", 2), "gpu", "refuse"),
        ({}, ExpectedGpus("H100", 1), "gpu", "refuse"),
        ({}, ExpectedGpus("A100 40GB", 1), "gpu", "refuse"),
        ({"gpus": (NamedGpu(name=A100, error="lost"),)}, NO_GPU, "gpu", "refuse"),
        ({"torch": None}, ASKED, "cuda", "doubtful"),
        ({"torch": TorchTrial(error="OSError: libcudart")}, ASKED, "cuda", "doubtful"),
        ({"torch": replace(TORCH, built_for=None, count=None, error="not compiled")}, ASKED, "cuda", "doubtful"),
        ({"torch": replace(TORCH, count=None, devices=(), error="RuntimeError: CUDA")}, ASKED, "cuda", "refuse"),
        ({"torch": replace(TORCH, count=None, devices=(), error="not done within 60 s")}, ASKED, "cuda", "doubtful"),
        ({"torch": replace(TORCH, count=0, devices=())}, ASKED, "cuda", "refuse"),
        ({"torch": replace(TORCH, devices=(replace(CARD, error="wrong"),))}, ASKED, "cuda", "refuse"),
        ({"torch": replace(TORCH, devices=())}, ASKED, "cuda", "doubtful"),
        ({"torch": replace(TORCH, built_for=None, count=None, error="x"), "gpus": ()}, NO_GPU, "cuda", "ok"),
        ({"disk": replace(DISK, error="read-only")}, ASKED, "disk", "refuse"),
        ({"disk": replace(DISK, write_mbs=10.0)}, ASKED, "disk-write", "doubtful"),
        ({"disk": replace(DISK, free=40 << 30)}, ASKED, "space", "refuse"),
        ({"disk": replace(DISK, free_inodes=150)}, ASKED, "inodes", "doubtful"),
        ({"net": (replace(NET, error="refused"),)}, ASKED, "network hub.example", "doubtful"),
        ({"net": (replace(NET, first_byte_s=9.0),)}, ASKED, "network hub.example", "doubtful"),
        ({"net": (replace(NET, mbs=0.2),)}, ASKED, "network hub.example", "doubtful"),
        ({"net": (replace(NET, status=404),)}, ASKED, "network hub.example", "ok"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_it(
    change: dict[str, Any], expected: ExpectedGpus, row: str, verdict: str
) -> None:
    found = judge_measurements(replace(GOOD, **change), expected, (), "runpod")
    assert {one.id: one.verdict.value for one in found}[row] == verdict, found
    assert all(one.advice for one in found if one.verdict.value == "refuse")
    assert exit_status(found) == int(any(one.verdict.value == "refuse" for one in found))


def peers(count: int = 3, **over: float) -> tuple[EarlierCheck, ...]:
    given = {"tflops": 250.0, "to_gpu_gbs": 24.0, "write_mbs": 800.0, "read_mbs": 900.0} | over
    return tuple(
        EarlierCheck(at=1.0, box=f"b{n}", platform="runpod", gpu=A100, **given)
        for n in range(count)
    )


@pytest.mark.parametrize(
    ("share", "verdict"),
    [(1.0, "ok"), (0.71, "ok"), (0.69, "doubtful"), (0.41, "doubtful"), (0.39, "refuse")],
)
def test_a_speed_is_held_against_the_median_of_its_peers(share: float, verdict: str) -> None:
    slow = replace(GOOD, torch=replace(TORCH, devices=(replace(CARD, tflops=250.0 * share),)))
    assert rows(slow, earlier=peers())["gemm"] == verdict
    other = tuple(replace(one, gpu="NVIDIA H100") for one in peers(tflops=900.0))
    assert rows(slow, earlier=other)["gemm"] == "ok"


def test_a_disk_that_is_slower_than_others_is_only_doubtful_and_other_platforms_do_not_count() -> (
    None
):
    slow = replace(GOOD, disk=replace(DISK, write_mbs=100.0))
    assert rows(slow, earlier=peers())["disk-write"] == "doubtful"
    assert (
        rows(slow, earlier=tuple(replace(one, platform="autodl") for one in peers()))["disk-write"]
        == "ok"
    )


def test_one_card_that_is_slower_than_its_neighbours_is_doubtful() -> None:
    both = (CARD, replace(CARD, device=1, tflops=150.0))
    found = replace(GOOD, gpus=GOOD.gpus * 2, torch=replace(TORCH, count=2, devices=both))
    assert rows(found, ExpectedGpus("A100", 2))["gemm"] == "doubtful"


def test_nonsense_figures_are_no_figures() -> None:
    odd = replace(
        GOOD, torch=replace(TORCH, devices=(replace(CARD, tflops=math.nan, to_gpu_gbs=-1.0),))
    )
    assert {"gemm", "pcie"} & set(rows(odd)) == set()
    assert remembered(BoxSpec(name="x", host="x"), odd).tflops is None


def test_checks_are_kept_the_newest_of_each_box(tmp_path: Path) -> None:
    path = tmp_path / "state/checks.json"
    spec = BoxSpec(name="lab", host="lab", profile="runpod")
    keep_check(path, remembered(spec, GOOD))
    keep_check(path, remembered(replace(spec, name="mill"), GOOD))
    keep_check(path, remembered(spec, replace(GOOD, at=2.0)))
    assert [(one.box, one.at, one.gpu, one.tflops) for one in load_checks(path)] == [
        ("mill", 1.0, A100, 250.0), ("lab", 2.0, A100, 250.0),
    ]  # fmt: skip
    path.write_bytes(b"[1, 2")
    assert load_checks(path) == ()


def test_the_platform_s_mirror_is_tried_and_else_the_hub() -> None:
    assert "https://hf-mirror.com" in addresses(load_profile("autodl"))


@pytest.mark.parametrize(
    ("profile", "durable", "mounts", "folder"),
    [
        ("autodl", "/root/autodl-fs/keep", (), "/root/autodl-tmp"),
        ("generic-ssh", None, (), None),
        ("generic-ssh", None, ("/", "/data"), "/data"),
        ("generic-ssh", "/nfs/me/keep", ("/nfs", "/scratch"), "/scratch"),
        ("generic-ssh", "/data/keep", ("/data",), "/data"),
    ],
)
def test_the_disk_that_runs_write_to_is_tried_and_not_the_durable_share(
    profile: str, durable: str | None, mounts: tuple[str, ...], folder: str | None
) -> None:
    spec = BoxSpec(name="x", host="x", profile=profile, durable=durable, mounts=mounts)
    assert data_folder(spec, load_profile(profile)) == folder


def test_the_route_of_jobs_is_named_and_one_that_cannot_be_used_is_doubtful() -> None:
    routed = replace(GOOD, net=(replace(NET, proxy="10.0.0.1:7890"),))
    (row,) = (
        one
        for one in judge_measurements(routed, ASKED, (), "autodl")
        if one.id.startswith("network")
    )
    assert "through the proxy 10.0.0.1:7890" in row.text
    assert (
        rows(replace(GOOD, route_error="rgt: the platform's hook failed"))["network route"]
        == "doubtful"
    )


@pytest.mark.parametrize(
    ("total", "verdict"), [(80, "ok"), (79, "ok"), (40, "refuse"), (None, "refuse")]
)
def test_a_size_that_was_asked_for_is_read_from_the_card(total: int | None, verdict: str) -> None:
    card = NamedGpu(name="NVIDIA A100", total=None if total is None else total << 30)
    assert rows(replace(GOOD, gpus=(card,)), ExpectedGpus("A100 80GB", 1))["gpu"] == verdict


def test_torch_must_see_all_cards_and_try_each() -> None:
    two = replace(GOOD, gpus=GOOD.gpus * 2)
    asked = ExpectedGpus("A100", 2)
    assert rows(two, asked)["cuda"] == "refuse"
    tried = replace(TORCH, count=2)
    assert rows(replace(two, torch=tried), asked)["cuda"] == "doubtful"
    late = replace(tried, devices=(CARD, replace(CARD, device=1)), error="not done within 60 s")
    assert rows(replace(two, torch=late), asked)["cuda"] == "doubtful"
    # Where the driver names none, but one was asked for, torch's word is looked at all the same.
    assert (
        rows(replace(GOOD, gpus=(), torch=replace(TORCH, count=0, devices=())), ASKED)["cuda"]
        == "refuse"
    )


def test_what_the_box_did_not_tell_has_no_row() -> None:
    bare = DiskTrial(dir="/x", free=900, total=1000)
    assert [
        one for one in rows(replace(GOOD, disk=bare)) if one.startswith(("disk", "space", "inodes"))
    ] == ["space"]
    assert (
        rows(
            replace(GOOD, disk=replace(bare, free=None, total=None, free_inodes=500, inodes=1000))
        )["inodes"]
        == "ok"
    )


def test_the_words_name_both_sides() -> None:
    text = {
        row.id: row.text
        for row in judge_measurements(
            GOOD, ExpectedGpus("H100", 2), peers(1, tflops=300.0), "runpod"
        )
    }
    assert text["gpu"] == f"1 × {A100}, requested 2 × H100"
    assert text["gemm"] == "matrix products 250.0 TFLOP/s; the median of 1 earlier is 300.0 TFLOP/s"
    assert text["pcie"].startswith("to the GPU 24.0 GB/s")
    assert text["network hub.example"] == "first byte after 0.20 s, 40.0 MB/s"
    (first, *_) = judge_measurements(
        replace(GOOD, gpus=(), gpu_error="no driver"), NO_GPU, (), "runpod"
    )
    assert first.text == "no GPU (no driver); none was requested"
